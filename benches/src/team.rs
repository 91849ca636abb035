//! A team of pinned threads that start together.
//!
//! Threads wait for each other by spinning, since a wake-up takes tens of microseconds and would
//! put the starts that far apart; where there are more threads than cores they yield instead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use core_affinity::CoreId;

/// Lets `size` threads pass together, any number of times.
pub struct Gate {
    size: usize,
    arrived: AtomicUsize,
}

impl Gate {
    /// A gate for `size` threads.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            arrived: AtomicUsize::new(0),
        }
    }

    /// Waits until all threads of this round are here.
    pub fn pass(&self) {
        // Relaxed would do for the count; acquire and release also publish what was made before.
        let place = self.arrived.fetch_add(1, Ordering::AcqRel);
        let goal = (place / self.size + 1) * self.size;
        let mut spins = 0_u32;
        while self.arrived.load(Ordering::Acquire) < goal {
            spins += 1;
            if spins.is_multiple_of(1 << 10) {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Pins the calling thread to the `seat`th core this process may use; false when refused.
pub fn pin(seat: usize) -> bool {
    let cores = cores();
    match cores.get(seat % cores.len().max(1)) {
        Some(core) => core_affinity::set_for_current(*core),
        None => false,
    }
}

/// The cores this process may use.
pub fn cores() -> Vec<CoreId> {
    core_affinity::get_core_ids().unwrap_or_default()
}

/// Runs `work` once for every member, each on its own pinned thread; results in member order.
pub fn run<M: Send, T: Send>(
    members: &mut [M],
    work: impl Fn(usize, &mut M, &Gate) -> T + Sync,
) -> Vec<T> {
    let gate = Gate::new(members.len());
    // Read before any thread is pinned: a pinned thread sees its own core only.
    let cores = cores();
    thread::scope(|scope| {
        let handles: Vec<_> = members
            .iter_mut()
            .enumerate()
            .map(|(seat, member)| {
                let (gate, work) = (&gate, &work);
                let core = cores.get(seat % cores.len().max(1)).copied();
                scope.spawn(move || {
                    if let Some(core) = core {
                        core_affinity::set_for_current(core);
                    }
                    work(seat, member, gate)
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| match handle.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_pass_a_gate_together_round_after_round() {
        let rounds = AtomicUsize::new(0);
        let mut members = [0_usize; 3];
        run(&mut members, |_, member, gate| {
            for round in 0..50 {
                rounds.fetch_add(1, Ordering::AcqRel);
                gate.pass();
                assert!(rounds.load(Ordering::Acquire) >= (round + 1) * 3);
                *member += 1;
                gate.pass();
            }
        });
        assert_eq!(members, [50; 3]);
    }
}
