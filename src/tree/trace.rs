//! What the arena is told, kept by a test, so that it can take a scope back and find what was not
//! told.

#![expect(unsafe_code, reason = "tests look at an arena's bytes")]

use std::cell::RefCell;
use std::ptr::NonNull;

use crate::arena::{Arena, Extent};
use crate::limits::PAGE_BYTES;

/// What was told since the scope began.
#[derive(Default)]
struct Scope {
    /// Addresses and bytes before they changed.
    before: Vec<(usize, Vec<u8>)>,
    /// Addresses and lengths.
    fresh: Vec<(usize, usize)>,
    taken: Vec<Extent>,
    given_back: Vec<Extent>,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

fn with(told: impl FnOnce(&mut Scope)) -> bool {
    SCOPE.with_borrow_mut(|scope| scope.as_mut().map(told).is_some())
}

pub(super) fn before(at: NonNull<u8>, bytes: usize) {
    with(|scope| {
        // SAFETY: the tree tells of ranges within its pages.
        let old = unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes) };
        scope.before.push((at.as_ptr() as usize, old.to_vec()));
    });
}

pub(super) fn fresh(at: NonNull<u8>, bytes: usize) {
    with(|scope| scope.fresh.push((at.as_ptr() as usize, bytes)));
}

pub(super) fn taken(extent: Extent) {
    with(|scope| scope.taken.push(extent));
}

/// Whether the extent is kept until the scope ends.
pub(super) fn given_back(extent: Extent) -> bool {
    with(|scope| scope.given_back.push(extent))
}

fn base(arena: &Arena) -> NonNull<u8> {
    arena.address(Extent {
        offset: 0,
        bytes: 0,
    })
}

/// A copy of the arena's first bytes.
pub(super) fn image(arena: &Arena, bytes: usize) -> Vec<u8> {
    assert!(bytes as u64 <= arena.bound_bytes());
    // SAFETY: so many bytes are mapped, and no page is borrowed for writing.
    unsafe { std::slice::from_raw_parts(base(arena).as_ptr(), bytes) }.to_vec()
}

/// Puts bytes into the arena, from its first one on.
pub(super) fn put(arena: &mut Arena, at: usize, bytes: &[u8]) {
    assert!((at + bytes.len()) as u64 <= arena.bound_bytes());
    // SAFETY: as above, and the arena is borrowed mutably.
    unsafe {
        let to = base(arena).add(at);
        to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
    }
}

/// A scope under way, and the arena as it was when it began.
pub(super) struct Traced {
    image: Vec<u8>,
}

/// Figures of a scope.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) before_bytes: usize,
    pub(super) fresh_bytes: usize,
}

impl Traced {
    pub(super) fn begin(arena: &Arena, bytes: usize) -> Self {
        SCOPE.set(Some(Scope::default()));
        let image = image(arena, bytes);
        Self { image }
    }

    /// Ends the scope, after a look at whether all that has changed was told.
    pub(super) fn end(self, arena: &mut Arena) -> Told {
        let scope = SCOPE.take().unwrap();
        self.check(arena, &scope);
        for &extent in &scope.given_back {
            arena.release(extent);
        }
        Told {
            before_bytes: scope.before.iter().map(|(_, old)| old.len()).sum(),
            fresh_bytes: scope.fresh.iter().map(|(_, bytes)| bytes).sum(),
        }
    }

    /// Takes the scope back. All but what was free when it began is as it was.
    pub(super) fn undo(self, arena: &mut Arena) {
        let scope = SCOPE.take().unwrap();
        self.check(arena, &scope);
        let start = base(arena).as_ptr() as usize;
        for (at, old) in scope.before.iter().rev() {
            put(arena, at - start, old);
        }
        for &extent in &scope.taken {
            arena.release(extent);
        }
    }

    fn check(&self, arena: &Arena, scope: &Scope) {
        let start = base(arena).as_ptr() as usize;
        let now = image(arena, self.image.len());
        let mut told = vec![false; now.len()];
        let before = scope.before.iter().map(|(at, old)| (*at, old.len()));
        for (at, bytes) in before.chain(scope.fresh.iter().copied()) {
            told[at - start..][..bytes].fill(true);
        }
        let pages = self.image.chunks(PAGE_BYTES).zip(now.chunks(PAGE_BYTES));
        for (page, (old, new)) in pages.enumerate().filter(|(_, (old, new))| old != new) {
            let told = &told[page * PAGE_BYTES..];
            let untold = (0..old.len()).find(|&at| old[at] != new[at] && !told[at]);
            assert_eq!(untold, None, "a byte of page {page} changed untold");
        }
    }
}
