//! A line that tells how far long work is, for people who watch.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often the line changes.
const PAUSE: Duration = Duration::from_millis(200);

/// The line, on standard error if that is a terminal, and nowhere otherwise.
pub(crate) struct Progress {
    doing: &'static str,
    is_shown: bool,
    told: Instant,
    is_dirty: bool,
}

impl Progress {
    pub(crate) fn new(doing: &'static str) -> Self {
        Self {
            doing,
            is_shown: stderr().is_terminal(),
            told: Instant::now(),
            is_dirty: false,
        }
    }

    /// Says what is done so far, if it is time to.
    pub(crate) fn tell(&mut self, done: impl FnOnce() -> String) {
        if !self.is_shown || self.told.elapsed() < PAUSE {
            return;
        }
        self.told = Instant::now();
        self.is_dirty = true;
        // The rest of a longer line before is wiped out.
        let _ = write!(stderr(), "\r{}: {}\x1b[K", self.doing, done());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_dirty {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// So many bytes of how many.
pub(super) fn bytes_of(done: u64, all: u64) -> String {
    let share = (100 * done).checked_div(all).unwrap_or(0);
    format!("{} of {} MiB, {share} %", done >> 20, all >> 20)
}
