//! What a forked child must not do: its copy of an engine has no threads, and the locks that it has
//! copied are its parent's.
//!
//! A child counts one fork more than whatever it has inherited from its parent was made with. The count
//! is kept by the C library's own fork, so that looking at it costs no system call; a child that is made
//! by a bare system call is not noticed. A lock of an open file would be held as long as any process
//! has that file open, so a child's copies are pointed at nothing.

#![expect(unsafe_code, reason = "the C library calls back in a child")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Locks of databases that are open at a time; those beyond are shared with forked children.
const LOCKS_MAX: usize = 256;

/// No file.
const NONE: i32 = -1;

static FORKS: AtomicU64 = AtomicU64::new(0);
static LOCKS: [AtomicI32; LOCKS_MAX] = [const { AtomicI32::new(NONE) }; LOCKS_MAX];
static NOTHING: AtomicI32 = AtomicI32::new(NONE);

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u64);

impl Home {
    /// This process.
    pub(crate) fn here() -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // A file that lives as long as the process, to point a child's copies at.
            if let Ok(nothing) = File::open("/dev/null") {
                NOTHING.store(nothing.as_raw_fd(), Ordering::Relaxed);
                std::mem::forget(nothing);
            }
            // SAFETY: the handler only uses atomics and system calls, as a child of threads may.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            debug_assert_eq!(refused, 0, "the C library has memory for a handler");
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is a child that was forked since.
    #[inline]
    pub(crate) fn is_elsewhere(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let nothing = NOTHING.load(Ordering::Relaxed);
    for lock in &LOCKS {
        let file = lock.swap(NONE, Ordering::Relaxed);
        if file != NONE && nothing != NONE {
            // SAFETY: replaces what an open file of ours refers to; its number stays in use.
            unsafe { libc::dup3(nothing, file, libc::O_CLOEXEC) };
        }
    }
}

/// A locked file, whose lock no child inherits.
pub(crate) struct Locked {
    file: File,
    home: Home,
}

impl Locked {
    pub(crate) fn new(file: File) -> Self {
        let home = Home::here();
        let number = file.as_raw_fd();
        let take = |lock: &&AtomicI32| {
            let taken = lock.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        };
        // Without a place, the lock ends with the last child.
        let _ = LOCKS.iter().find(take);
        Self { file, home }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.home.is_elsewhere() {
            return;
        }
        let number = self.file.as_raw_fd();
        for lock in &LOCKS {
            let _ = lock.compare_exchange(number, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
        // The end of the file does the same, unless somebody else has it open.
        let _ = self.file.unlock();
    }
}
