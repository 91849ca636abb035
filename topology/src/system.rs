//! The system calls that std does not have: thread affinity and the memory policy.
//!
//! Masks grow until the kernel accepts their length, so machines beyond 1,024 processors work.
//! Everything here reads, except [`set_affinity`], which changes the calling thread only.
#![expect(unsafe_code, reason = "system calls have no safe form in std")]

use std::io;

use crate::set::NumberSet;

/// Words of the first mask tried: 1,024 processors.
const MASK_WORDS_MIN: usize = 16;
/// Words of the largest mask tried: 1,048,576 processors.
const MASK_WORDS_MAX: usize = 16 * 1024;
/// Words of the node mask: Linux is built for 1,024 nodes at most.
const NODE_WORDS: usize = 16;

/// Whose affinity is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Thread {
    /// The calling thread.
    Current,
    /// The first thread of the process.
    Main,
}

/// The affinity mask of a thread.
pub(crate) fn affinity(thread: Thread) -> io::Result<NumberSet> {
    let id: libc::pid_t = match thread {
        Thread::Current => 0,
        Thread::Main => libc::pid_t::try_from(std::process::id()).unwrap_or(0),
    };
    let mut mask = vec![0_u64; MASK_WORDS_MIN];
    loop {
        // SAFETY: the mask is writable for the length given, and the kernel writes no more.
        let written = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                id,
                size_of_val(mask.as_slice()),
                mask.as_mut_ptr(),
            )
        };
        if written >= 0 {
            return Ok(set_of(&mask));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || mask.len() >= MASK_WORDS_MAX {
            return Err(error);
        }
        mask.resize(mask.len() * 4, 0);
    }
}

/// Sets the affinity mask of the calling thread.
pub(crate) fn set_affinity(pus: &NumberSet) -> io::Result<()> {
    let mut mask = vec![0_u64; MASK_WORDS_MIN];
    for pu in pus.iter() {
        let word = pu as usize / 64;
        if word >= mask.len() {
            mask.resize(word + 1, 0);
        }
        mask[word] |= 1 << (pu % 64);
    }
    // SAFETY: the mask is readable for the length given; 0 means the calling thread.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(mask.as_slice()),
            mask.as_ptr(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The PU that the calling thread was running on a moment ago.
pub(crate) fn running_on() -> Option<u32> {
    // SAFETY: the call takes no argument and touches no memory of ours.
    let pu = unsafe { libc::sched_getcpu() };
    u32::try_from(pu).ok()
}

/// The memory policy of the calling thread: its mode and its nodes.
pub(crate) fn memory_policy() -> io::Result<(i32, NumberSet)> {
    let mut mode: libc::c_int = 0;
    let mut nodes = [0_u64; NODE_WORDS];
    // SAFETY: `mode` and `nodes` are writable, the length in bits is that of `nodes`, and with
    // address 0 and flags 0 the call only reads the thread's policy.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            nodes.as_mut_ptr(),
            NODE_WORDS * 64,
            0_usize,
            0_usize,
        )
    };
    if result == 0 {
        Ok((mode, set_of(&nodes)))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The members of a mask, lowest bit first.
fn set_of(mask: &[u64]) -> NumberSet {
    let bits = mask.iter().enumerate().flat_map(|(index, word)| {
        (0..64).filter_map(move |bit| (word & (1 << bit) != 0).then_some(index as u32 * 64 + bit))
    });
    bits.collect()
}
