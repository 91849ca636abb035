//! Pins the calling thread, and believes nothing that was not read back.
//!
//! core_affinity sets the mask. It would end the process on a number of 1,024 or above, so those
//! go to the system call directly. Either way the mask in force is read back afterwards: a pin
//! that is not in force is an error, and the thread goes on with whatever affinity it has.
//!
//! Only the calling thread is ever changed. A thread that is spawned from a pinned one inherits
//! the pin: spawn from a thread that is not pinned.

use std::io;

use crate::error::PinError;
use crate::set::NumberSet;
use crate::system::{self, Thread};

/// The first number that core_affinity cannot take.
const CORE_AFFINITY_END: u32 = 1024;

/// Pins the calling thread to one PU, by the operating system's number.
///
/// # Errors
/// [`PinError::Refused`] with the PU, the thread's affinity and the system's reason, or
/// [`PinError::NotInForce`]. The thread goes on unpinned.
pub fn pin_current_thread(pu: u32) -> Result<(), PinError> {
    let asked: NumberSet = [pu].into_iter().collect();
    let set = if pu < CORE_AFFINITY_END {
        let id = pu as usize;
        if core_affinity::set_for_current(core_affinity::CoreId { id }) {
            Ok(())
        } else {
            // core_affinity drops the reason; asking once more tells it.
            system::set_affinity(&asked)
        }
    } else {
        system::set_affinity(&asked)
    };
    if let Err(error) = set {
        return Err(refused(pu, &error));
    }
    match current_affinity() {
        Ok(got) if got == asked => Ok(()),
        Ok(got) => Err(PinError::NotInForce { pu, got }),
        Err(error) => Err(refused(pu, &error)),
    }
}

/// The PUs that the calling thread may run on.
///
/// # Errors
/// What `sched_getaffinity` answers where it is denied.
pub fn current_affinity() -> io::Result<NumberSet> {
    system::affinity(Thread::Current)
}

/// The PU that the calling thread runs on at the moment; it stays true only while pinned.
#[must_use]
pub fn current_pu() -> Option<u32> {
    system::running_on()
}

/// Gives the calling thread an affinity of several PUs, for example the one it had before.
///
/// # Errors
/// What `sched_setaffinity` answers.
pub fn set_current_affinity(pus: &NumberSet) -> io::Result<()> {
    system::set_affinity(pus)
}

fn refused(pu: u32, error: &io::Error) -> PinError {
    PinError::Refused {
        pu,
        allowed: current_affinity().unwrap_or_default(),
        errno: error.raw_os_error().unwrap_or(0),
        reason: reason(error),
    }
}

/// The system's reason without the number that std appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{PinError, current_affinity, current_pu, pin_current_thread, set_current_affinity};

    /// Runs on a thread of its own, so that no pin outlives the test.
    fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().expect("the thread ends well"))
    }

    #[test]
    fn a_pin_is_in_force_and_can_be_taken_back() {
        apart(|| {
            let before = current_affinity().unwrap();
            let pu = before.first().unwrap();
            pin_current_thread(pu).unwrap();
            assert_eq!(current_affinity().unwrap().to_string(), pu.to_string());
            assert_eq!(current_pu(), Some(pu));
            set_current_affinity(&before).unwrap();
            assert_eq!(current_affinity().unwrap(), before);
        });
    }

    #[test]
    fn numbers_that_no_processor_has_are_refused_with_all_that_helps() {
        for pu in [1023, 1024, 4096, 100_000] {
            let (before, error, after) = apart(|| {
                let before = current_affinity().unwrap();
                let error = pin_current_thread(pu).unwrap_err();
                (before, error, current_affinity().unwrap())
            });
            assert_eq!(before, after);
            let PinError::Refused { allowed, errno, .. } = &error else {
                panic!("{error:?}");
            };
            assert_eq!((allowed, *errno), (&before, libc::EINVAL));
            let text = error.to_string();
            assert!(text.contains(&format!("PU {pu}")), "{text}");
            assert!(text.contains(&before.to_string()), "{text}");
        }
    }

    #[test]
    fn pinning_one_thread_leaves_the_others_alone() {
        let before = current_affinity().unwrap();
        apart(|| pin_current_thread(current_affinity().unwrap().first().unwrap())).unwrap();
        assert_eq!(current_affinity().unwrap(), before);
    }
}
