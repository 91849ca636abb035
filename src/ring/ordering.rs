//! Which ordering of a ring publishes what to whom. Each is one half of a pair.

use std::sync::atomic::Ordering;

use crate::sync::pick;

/// Producer, after filling a slot: the message is complete for the consumer that reads this
/// stamp with [`receive`].
#[inline(always)]
pub(super) fn publish() -> Ordering {
    pick("publish", Ordering::Release)
}

/// Consumer, before reading a slot: pairs with [`publish`].
#[inline(always)]
pub(super) fn receive() -> Ordering {
    pick("receive", Ordering::Acquire)
}

/// Consumer, after reading a slot: the reading is over for the producer that sees this stamp
/// with [`reclaim`] and overwrites the message.
#[inline(always)]
pub(super) fn give_back() -> Ordering {
    pick("give_back", Ordering::Release)
}

/// Producer, before filling a slot: pairs with [`give_back`].
#[inline(always)]
pub(super) fn reclaim() -> Ordering {
    pick("reclaim", Ordering::Acquire)
}

/// An end that is being dropped: all that it did to the ring comes before its farewell, for
/// the peer that sees it with [`see_farewell`].
#[inline(always)]
pub(super) fn say_farewell() -> Ordering {
    pick("say_farewell", Ordering::Release)
}

/// The peer of a dropped end: pairs with [`say_farewell`].
#[inline(always)]
pub(super) fn see_farewell() -> Ordering {
    pick("see_farewell", Ordering::Acquire)
}

/// Both ends are gone: the `Arc`'s last decrement has ordered everything, nobody else looks.
#[inline(always)]
pub(super) fn alone() -> Ordering {
    Ordering::Relaxed
}
