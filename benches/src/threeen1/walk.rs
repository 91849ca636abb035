//! One stream's walk: sequences from its starts, as far as nobody has been there.
//!
//! A sequence is followed until an integer whose steps are known, or 1. What was met on the way is
//! the *path*; its steps follow from those of the integer at its end. 1 itself is never stored,
//! and yet looked up, which keeps the sum exact: every start costs one look-up more than updates.
//!
//! # What a crash leaves
//! The result and the highest integer are raised before the first step of the path is stored, so
//! that a path that is found later, whole or in part, has already been counted for both. Steps are
//! set from the path's end to its start, so that behind a step that is there no other is missing.

use crate::failure::Failure;
use crate::threeen1::globals::{Counts, Name, Pairs, Stream};
use crate::threeen1::words::Spelling;

/// What is one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Unit {
    /// Every update, as in the original.
    Update,
    /// All updates of a path, with the result.
    Path,
}

impl Unit {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Path => "path",
        }
    }
}

/// The state of a walk, kept from start to start.
pub struct Walk {
    spelling: Spelling,
    unit: Unit,
    counts: Counts,
    /// Highest integer that the database knows of through this stream.
    raised: u64,
    /// Bytes of all keys and values that were set.
    bytes: u64,
    key: Vec<u8>,
    path: Pairs,
}

impl Walk {
    /// A walk that has been nowhere.
    pub fn new(spelling: Spelling, unit: Unit) -> Self {
        Self {
            spelling,
            unit,
            counts: Counts::default(),
            raised: 0,
            bytes: 0,
            key: Vec::new(),
            path: Pairs::default(),
        }
    }

    /// What is to be added to the counts of all streams.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of all keys and values that were set.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Walks the sequence that starts at `start`.
    ///
    /// # Errors
    /// Those of the store; a stored value that is no number; an integer that leaves 64 bits.
    pub fn from<S: Stream>(&mut self, stream: &mut S, start: u64) -> Result<(), Failure> {
        let end = self.explore(stream, start)?;
        if self.path.is_empty() {
            return Ok(());
        }
        let known = match end {
            1 => 0,
            _ => self.steps_of_key(stream, end)?,
        };
        let steps = self.path.len() as u64 + known;
        for met in 0..self.path.len() as u64 {
            self.path
                .push_value(|text| self.spelling.encode(steps - met, text));
        }
        if self.counts.highest > self.raised {
            stream.raise(Name::Highest, self.counts.highest)?;
            self.raised = self.counts.highest;
        }
        match self.unit {
            Unit::Update => {
                stream.raise(Name::Result, steps)?;
                for (key, value) in self.path.iter().rev() {
                    self.counts.updates += 1;
                    stream.set(key, value)?;
                }
            }
            Unit::Path => {
                stream.set_path(&self.path, steps)?;
                self.counts.updates += self.path.len() as u64;
            }
        }
        self.bytes += self.path.bytes() as u64;
        Ok(())
    }

    /// Fills the path from `start` on; gives the integer at its end, whose key is left in `key`.
    fn explore<S: Stream>(&mut self, stream: &mut S, start: u64) -> Result<u64, Failure> {
        self.path.clear();
        let mut integer = start;
        loop {
            self.key.clear();
            self.spelling.encode(integer, &mut self.key);
            self.counts.reads += 1;
            if stream.exists(&self.key)? || integer == 1 {
                return Ok(integer);
            }
            self.path.push_key(&self.key);
            integer = next(integer)
                .ok_or_else(|| Failure::new(format!("the sequence of {start} leaves 64 bits")))?;
            self.counts.highest = self.counts.highest.max(integer);
        }
    }

    fn steps_of_key<S: Stream>(&self, stream: &mut S, integer: u64) -> Result<u64, Failure> {
        match stream.get(&self.key)? {
            Some(text) => self.spelling.decode(&text),
            None => Err(Failure::new(format!(
                "the steps of {integer} were there and are gone"
            ))),
        }
    }
}

/// The integer after `integer` in its sequence.
pub fn next(integer: u64) -> Option<u64> {
    match integer.is_multiple_of(2) {
        true => Some(integer / 2),
        false => integer.checked_mul(3)?.checked_add(1),
    }
}
