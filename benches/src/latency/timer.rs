//! When calls begin, and how long they take from there.
//!
//! *Closed*: the next call begins when the last one has ended. A call that takes long then keeps others
//! from being made, and from being counted (the coordinated omission of Gil Tene). *Open*: calls are to
//! begin at moments that are fixed beforehand, so many a second, and each is counted from its moment,
//! however late it could be made: what a client of a service that has to answer at that rate would see.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::failure::Failure;

/// Shorter waits are spent looking at the clock: sleeping is not exact.
const SLEEP_MIN: Duration = Duration::from_micros(200);

/// Digits of a time that are kept.
const DIGITS: u8 = 3;

/// When the next call begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// When the last one has ended.
    Closed,
    /// So long after that.
    Paused(Duration),
    /// So many begin in a second, whether others have ended or not.
    Open(f64),
}

/// When to stop, whichever is first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) calls: usize,
    pub(super) time: Duration,
}

/// Times of calls.
pub(super) struct Timer {
    pub(super) nanos: Histogram<u64>,
    pub(super) elapsed: Duration,
    /// From when the calls under way are counted.
    begun: Instant,
}

impl Timer {
    /// Makes calls at a pace; each gets its number, and says when what it has asked for is there.
    pub(super) fn run(
        pace: Pace,
        bound: Bound,
        mut call: impl FnMut(usize, &mut Self) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let start = Instant::now();
        let mut timer = Self {
            nanos: Histogram::new(DIGITS)?,
            elapsed: Duration::ZERO,
            begun: start,
        };
        for number in 0..bound.calls {
            if timer.elapsed >= bound.time {
                break;
            }
            timer.begun = match pace {
                Pace::Closed => Instant::now(),
                Pace::Paused(pause) => {
                    thread::sleep(pause);
                    Instant::now()
                }
                Pace::Open(rate) => {
                    let moment = start + Duration::from_secs_f64(number as f64 / rate);
                    wait_until(moment);
                    moment
                }
            };
            call(number, &mut timer)?;
            timer.elapsed = start.elapsed();
        }
        Ok(timer)
    }

    /// An answer is there.
    pub(super) fn answered(&mut self) -> Result<(), Failure> {
        Ok(self.nanos.record(self.begun.elapsed().as_nanos() as u64)?)
    }
}

/// Returns at once when the moment has passed.
fn wait_until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SLEEP_MIN {
            thread::sleep(left - SLEEP_MIN / 2);
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(20);

    /// Ten calls of which the first takes long.
    fn one_long(pace: Pace) -> Histogram<u64> {
        let bound = Bound {
            calls: 10,
            time: Duration::from_secs(60),
        };
        let timer = Timer::run(pace, bound, |number, timer| {
            if number == 0 {
                thread::sleep(LONG);
            }
            timer.answered()
        });
        timer.unwrap().nanos
    }

    #[test]
    fn calls_that_had_to_wait_for_a_long_one_are_counted_from_their_own_moments() {
        // All ten were to begin within a tenth of the first one's time.
        let nanos = one_long(Pace::Open(10.0 / (LONG.as_secs_f64() / 10.0)));
        assert_eq!(nanos.len(), 10);
        assert!(nanos.min() >= LONG.as_nanos() as u64 / 2, "{}", nanos.min());
    }

    #[test]
    fn what_is_asked_for_a_call_may_be_answered_more_than_once() {
        let bound = Bound {
            calls: 3,
            time: Duration::from_secs(60),
        };
        let timer = Timer::run(Pace::Closed, bound, |_, timer| {
            timer.answered()?;
            timer.answered()
        });
        assert_eq!(timer.unwrap().nanos.len(), 6);
    }
}
