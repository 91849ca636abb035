//! The round trip of one cache line between two cores.
//!
//! Everything that crosses cores costs a multiple of this, and in a virtual machine the host may
//! move the two processors between near and far within seconds: so it is measured beside every cell.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::rounds::Summary;
use crate::team;

/// Cores closer than this count as near: they share a last-level cache.
pub const NEAR_NANOS_MAX: f64 = 200.0;

const WINDOWS: usize = 21;
const TRIPS_PER_WINDOW: u64 = 2_000;

/// Nothing else lives on the line that travels.
#[repr(align(128))]
struct Line(AtomicU64);

/// Round trip times of one line in nanoseconds, several windows; `None` with fewer than two cores.
pub fn round_trip() -> Option<Summary> {
    if team::cores().len() < 2 {
        return None;
    }
    let line = Line(AtomicU64::new(0));
    let mut members = [Vec::new(), Vec::new()];
    team::run(&mut members, |seat, windows, gate| {
        let mut turn = seat as u64;
        gate.pass();
        for _ in 0..WINDOWS {
            let start = Instant::now();
            for _ in 0..TRIPS_PER_WINDOW {
                while line.0.load(Ordering::Acquire) != turn {
                    std::hint::spin_loop();
                }
                line.0.store(turn + 1, Ordering::Release);
                turn += 2;
            }
            windows.push(start.elapsed().as_nanos() as f64 / TRIPS_PER_WINDOW as f64);
        }
    });
    Some(Summary::of(&members[0]))
}

/// "near" or "far", by the median of a round trip.
pub fn class(nanos: f64) -> &'static str {
    if nanos < NEAR_NANOS_MAX {
        "near"
    } else {
        "far"
    }
}
