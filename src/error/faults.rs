//! What is found wrong in a file: as many of the findings as people read, and how many there are.

use std::fmt::Display;

/// Findings of one kind of place that are kept.
const KEPT_MAX: usize = 1000;

/// Findings: where each is, and what it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    kept: Vec<(String, String)>,
    more: u64,
}

impl Faults {
    pub(crate) fn note(&mut self, place: impl Display, what: impl Display) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push((place.to_string(), what.to_string()));
        } else {
            self.more += 1;
        }
    }

    /// Those that are kept, and how many more there were.
    pub(crate) fn into_parts(self) -> (Vec<(String, String)>, u64) {
        (self.kept, self.more)
    }

    /// The first one, in a sentence.
    pub(crate) fn first(&self) -> Option<String> {
        let (place, what) = self.kept.first()?;
        Some(format!("{place}: {what}"))
    }
}
