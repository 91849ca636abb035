//! The caller's memory policy, which opening and closing an engine leave alone.

#![expect(
    unsafe_code,
    reason = "the memory policy is read and set by system calls"
)]

use std::io;

use ancile::topology::Machine;
use libc::{c_int, c_long, c_ulong};

use super::support::{builder, watchdog};

/// Bits of a node mask, more than any kernel's.
const MASK_BITS: usize = 4096;
const MASK_WORDS: usize = MASK_BITS / c_ulong::BITS as usize;

/// A thread's memory policy: its mode, and the nodes that go with it.
#[derive(Debug, PartialEq, Eq)]
struct MemoryPolicy {
    mode: c_int,
    nodes: [c_ulong; MASK_WORDS],
}

impl MemoryPolicy {
    fn on(mode: c_int, node: u32) -> Self {
        let mut nodes = [0; MASK_WORDS];
        nodes[(node / c_ulong::BITS) as usize] = 1 << (node % c_ulong::BITS);
        Self { mode, nodes }
    }

    fn of_this_thread() -> io::Result<Self> {
        let (mut mode, mut nodes) = (0, [0; MASK_WORDS]);
        // SAFETY: the mask has as many bits as stated; no address is asked about.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.as_mut_ptr(),
                MASK_BITS,
                std::ptr::null::<u8>(),
                0 as c_ulong,
            )
        };
        success(result).map(|()| Self { mode, nodes })
    }

    fn set(&self) -> io::Result<()> {
        // SAFETY: the mask has as many bits as stated.
        success(unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                self.mode,
                self.nodes.as_ptr(),
                MASK_BITS,
            )
        })
    }
}

fn success(result: c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn memory_policy_of_the_caller_is_the_same_after_open_and_after_close() {
    let _watchdog = watchdog(60);
    // A policy is a thread's own: on a thread that is over afterwards.
    let checked = std::thread::spawn(|| {
        let before = match MemoryPolicy::of_this_thread() {
            Ok(before) => before,
            Err(error) => {
                println!("skipped: the memory policy cannot be read here: {error}");
                return;
            }
        };
        check(&before);
        let machine = Machine::discover();
        let node = machine.numa_nodes.first().map_or(0, |node| node.os_index);
        for mode in [libc::MPOL_PREFERRED, libc::MPOL_BIND, libc::MPOL_INTERLEAVE] {
            let wanted = MemoryPolicy::on(mode, node);
            if let Err(error) = wanted.set() {
                println!("skipped: mode {mode} on node {node} cannot be set here: {error}");
                continue;
            }
            assert_eq!(MemoryPolicy::of_this_thread().unwrap(), wanted);
            check(&wanted);
        }
    });
    checked.join().unwrap();
}

/// Opens and closes an engine on a thread whose policy is `expected`.
fn check(expected: &MemoryPolicy) {
    let now = || MemoryPolicy::of_this_thread().unwrap();
    let engine = builder(2).build().unwrap();
    assert_eq!(now(), *expected, "after open");
    engine.prefault(4 << 20).unwrap();
    engine.report().unwrap();
    assert_eq!(now(), *expected, "after use");
    engine.close().unwrap();
    assert_eq!(now(), *expected, "after close");
    let refused = builder(2).arena_bytes(u64::MAX).build();
    assert!(refused.is_err());
    assert_eq!(now(), *expected, "after an open that failed");
}
