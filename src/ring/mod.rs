//! A bounded queue from one thread to one other thread, one cache line a message.
//!
//! # How it works
//!
//! A ring is an array of slots. Each slot holds a message and a *stamp* that says whose turn the
//! slot is: `2 * lap` when the producer may fill it on that lap, `2 * lap + 1` when the consumer
//! may empty it. Filling and emptying add one each, so a slot that was emptied on one lap is
//! ready to be filled on the next.
//!
//! ```text
//!            0       4                              64
//!            +-------+------------------------------+
//!   slot 0   | stamp | message                      |   one line up to 60 bytes of message
//!            +-------+------------------------------+   (56 when the message wants 8-byte
//!   slot 1   | stamp | message                      |   alignment), two lines up to 124
//!            +-------+------------------------------+
//! ```
//!
//! There is no shared head or tail: each end remembers its own place, and learns about the other
//! end from the stamp it has to read anyway. The line that carries the message carries the news
//! of it, so a message costs one line across and, a lap later, one line back. The one-slot
//! handshake is FastForward's (Giacomoni, Moseley, Vachharajani, PPoPP 2008), the numbered stamp
//! comes from Vyukov's bounded queue.
//!
//! # What can change under you
//!
//! - [`Producer::push`] may find room a moment after it said [`Full`]. Only `push`, which needs the
//!   same `&mut Producer`, takes room away.
//! - [`Consumer::is_ready`] may turn from `false` to `true` at any time, and never back: only
//!   `pop`, which needs the same `&mut Consumer`, takes a message out.
//! - `is_abandoned` turns from `false` to `true` once. After the consumer saw `true`, `pop`
//!   returns everything that the producer had pushed, then `None` for ever.
//!
//! # Why not a ring of a library
//!
//! Nanoseconds a message between two pinned cores, 56 bytes each, 10th percentile of many short
//! runs; beside rtrb 0.4.1, message by message and in chunks of 64. *Near* and *far* are two
//! distances between the cores: a cache line there and back takes 75-90 or 380-430 ns. One way is
//! given as a range over ends that work 0 to 4 ns on a message, which is what decides how often
//! they meet on a line.
//!
//! | near / far | ours | rtrb | in chunks |
//! |---|---|---|---|
//! | one way, 1,024 slots | 1.0-6.4 / 2.6-22 | 5.5-10.6 / 51-76 | 2.7 / 13 |
//! | one way, 16 bytes | 3.6-6.1 / 3.9-22 | 2.1-3.6 / 18-35 | |
//! | there and back, 64 under way | 9.1 / 37 | 14 / 91 | |
//! | there and back, 8 under way | 17 / 77 | 29 / 117 | |
//! | there and back, 1 under way | 121 / 572 | 121 / 510 | |
//!
//! So single messages of a line go about as fast as collected ones would, above all between far
//! cores. Messages far smaller than a line between near cores are what it is worse at, and one
//! message at a time between far ones: there the waiting end polls the line being filled. A
//! message that needs a second line costs 10 / 54 one way: keep it to 56 bytes.
//!
//! # What is absent on purpose
//!
//! No length (nobody could use it before it is stale), no blocking, no waking (the owner of many
//! rings decides how to wait), no batch calls (every slot publishes itself, so a batch would save
//! nothing on the wire), no prefetching (slots follow each other regularly enough for the
//! processor; asking for the next one made most cases slower), no cloning of ends. The memory is
//! touched first by the thread that calls [`ring`], and so lies on its NUMA node: call it where the
//! consumer runs.
#![expect(
    unsafe_code,
    reason = "messages move through slots that two threads take turns to own"
)]

mod ordering;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod test;

use std::fmt;
use std::mem::{MaybeUninit, needs_drop};

use crate::sync::{Arc, AtomicBool, AtomicU32, UnsafeCell};

/// Makes a ring of `capacity` slots; any capacity from one up is legal.
///
/// # Panics
///
/// Panics if `capacity` is zero.
pub(crate) fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    ring_at_lap(capacity, 0)
}

/// Makes a ring that has gone round `lap` times already. Stamps count modulo 2^32; only their
/// equality is ever asked for, and a slot is at most one step away from what an end expects.
fn ring_at_lap<T>(capacity: usize, lap: u32) -> (Producer<T>, Consumer<T>) {
    assert!(capacity > 0, "a ring has at least one slot");
    let stamp = lap.wrapping_mul(2);
    let shared = Arc::new(Shared {
        slots: (0..capacity).map(|_| Slot::new(stamp)).collect(),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    let producer = Producer {
        place: Place::new(&shared, stamp),
        shared: Arc::clone(&shared),
    };
    let consumer = Consumer {
        place: Place::new(&shared, stamp.wrapping_add(1)),
        shared,
    };
    (producer, consumer)
}

/// The sending end of a ring.
pub(crate) struct Producer<T> {
    place: Place<T>,
    shared: Arc<Shared<T>>,
}

/// The receiving end of a ring.
pub(crate) struct Consumer<T> {
    place: Place<T>,
    shared: Arc<Shared<T>>,
}

/// What [`Producer::push`] could not take, given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full<T>(pub(crate) T);

impl<T> Producer<T> {
    /// Sends `value`, or gives it back when the consumer has not yet emptied the next slot.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> Result<(), Full<T>> {
        let slot = self.place.slot();
        if slot.stamp.load(ordering::reclaim()) != self.place.stamp {
            return Err(Full(value));
        }
        slot.value.with_mut(|message| {
            // SAFETY: the stamp is an even one of our lap, so the slot is empty and the consumer
            // stays away until the store below; no other producer exists, and we are borrowed
            // mutably.
            unsafe { (*message).write(value) };
        });
        slot.stamp
            .store(self.place.stamp.wrapping_add(1), ordering::publish());
        self.place.advance();
        Ok(())
    }

    /// Whether the next message could be sent now.
    pub(crate) fn has_room(&self) -> bool {
        self.place.slot().stamp.load(ordering::reclaim()) == self.place.stamp
    }

    /// Takes back, the oldest first, what the consumer left behind. It is gone
    /// ([`is_abandoned`](Self::is_abandoned)), and so is this end.
    ///
    /// # Panics
    ///
    /// Panics if the consumer is not gone.
    pub(crate) fn recover(mut self) -> impl Iterator<Item = T> {
        assert!(self.is_abandoned(), "the consumer still receives");
        // The oldest message lies farthest ahead: the slots from here on are the last lap's.
        (0..self.place.capacity).filter_map(move |_| {
            let slot = self.place.slot();
            let stamp = slot.stamp.load(ordering::alone());
            self.place.advance();
            (stamp % 2 == 1).then(|| {
                slot.stamp.store(stamp.wrapping_add(1), ordering::alone());
                slot.value.with(|message| {
                    // SAFETY: an odd stamp says that the slot holds a message; the consumer is
                    // gone, and seen to be, so nobody else reads it, and the store above takes it
                    // out of the slot for good.
                    unsafe { (*message).assume_init_read() }
                })
            })
        })
    }

    /// Whether the consumer is gone, so that nothing sent from now on will be received.
    #[inline]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.shared.consumer_gone.load(ordering::see_farewell())
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest message, if there is one.
    ///
    /// The slot is given back and the place advanced before the message is handed over: whatever
    /// its `Drop` does, the ring never drops it a second time.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let slot = self.place.slot();
        if slot.stamp.load(ordering::receive()) != self.place.stamp {
            return None;
        }
        let value = slot.value.with(|message| {
            // SAFETY: the stamp is an odd one of our lap, so the producer wrote a message here
            // and stays away until the store below; nobody else reads it, and the store takes
            // it out of the slot for good.
            unsafe { (*message).assume_init_read() }
        });
        slot.stamp
            .store(self.place.stamp.wrapping_add(1), ordering::give_back());
        self.place.advance();
        Some(value)
    }

    /// The message that `pop` returns next, if it is there.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&T> {
        let slot = self.place.slot();
        if slot.stamp.load(ordering::receive()) != self.place.stamp {
            return None;
        }
        Some(slot.value.with(|message| {
            // SAFETY: as in `pop`; the message stays in its slot as long as `&self` keeps `pop`
            // away, and the producer stays away as long as it does.
            unsafe { (*message).assume_init_ref() }
        }))
    }

    /// How many messages are waiting, at least: those that were sent before. Looks at each.
    pub(crate) fn waiting(&self) -> usize {
        let mut place = Place { ..self.place };
        let mut waiting = 0;
        while waiting < place.capacity
            && place.slot().stamp.load(ordering::receive()) == place.stamp
        {
            waiting += 1;
            place.advance();
        }
        waiting
    }

    /// Whether a message is waiting: one load of a line that `pop` reads next.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.place.slot().stamp.load(ordering::receive()) == self.place.stamp
    }

    /// Whether the producer is gone. What it had pushed can still be popped.
    #[inline]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.shared.producer_gone.load(ordering::see_farewell())
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared
            .producer_gone
            .store(true, ordering::say_farewell());
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared
            .consumer_gone
            .store(true, ordering::say_farewell());
    }
}

// SAFETY: an end only reaches the slots whose turn it is, wherever it runs; messages cross
// threads, hence `T: Send`. Ends are not `Sync`: they hold a raw pointer.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as for `Producer`.
unsafe impl<T: Send> Send for Consumer<T> {}

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the ring is full")
    }
}

/// Where one end stands: the slot it uses next, and the stamp that says it may.
struct Place<T> {
    /// First of `capacity` slots, which live as long as the `Arc` beside this place. Kept here so
    /// that polling an idle ring touches the end and the slot, and no third line.
    slots: *const Slot<T>,
    capacity: usize,
    /// Always below `capacity`.
    index: usize,
    stamp: u32,
}

impl<T> Place<T> {
    fn new(shared: &Shared<T>, stamp: u32) -> Self {
        Self {
            slots: shared.slots.as_ptr(),
            capacity: shared.slots.len(),
            index: 0,
            stamp,
        }
    }

    #[inline]
    fn slot<'ring>(&self) -> &'ring Slot<T> {
        debug_assert!(self.index < self.capacity);
        // SAFETY: `index` is below the number of slots; the end that owns this place keeps the
        // slots alive and uses the reference within one call.
        unsafe { &*self.slots.add(self.index) }
    }

    #[inline]
    fn advance(&mut self) {
        self.index += 1;
        if self.index == self.capacity {
            self.index = 0;
            self.stamp = self.stamp.wrapping_add(2);
        }
    }
}

/// What both ends keep alive. The two flags are written once, at the end of an end's life.
struct Shared<T> {
    slots: Box<[Slot<T>]>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

/// A place for one message. Starts on a cache line of its own, so that the two ends meet on a
/// line only when they are at the same message.
#[repr(C, align(64))]
struct Slot<T> {
    /// Even: empty. Odd: `value` holds a message.
    stamp: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<T> Slot<T> {
    fn new(stamp: u32) -> Self {
        Self {
            stamp: AtomicU32::new(stamp),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

impl<T> Drop for Slot<T> {
    /// Drops a message that nobody received. The slots are dropped as a slice, so that one
    /// panicking message does not keep the others from being dropped.
    fn drop(&mut self) {
        if !needs_drop::<T>() {
            return;
        }
        if self.stamp.load(ordering::alone()) % 2 == 1 {
            self.value.with_mut(|message| {
                // SAFETY: an odd stamp says that the slot holds a message; we own the slot, and
                // it is dropped once.
                unsafe { (*message).assume_init_drop() };
            });
        }
    }
}
