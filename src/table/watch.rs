//! What happens to rows, in the order in which it happens: for tests in which one thread does it all.
//!
//! Every change of a row is noted with whoever it is made for, and so is every decision about a
//! transaction. Nothing is noted before [`begin`].

use std::cell::{Cell, RefCell};

/// A row by its key, or in tables without keys by its direct id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowName {
    pub(crate) is_keyed: bool,
    pub(crate) number: u64,
}

/// Something that happened, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) actor: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A row became this, at the place of this direct id.
    Row(RowName, Option<[u64; 3]>, u64),
    /// A transaction was decided.
    Decided,
    /// Something that a crash has undone.
    Undone,
}

thread_local! {
    static EVENTS: RefCell<Option<Vec<Event>>> = const { RefCell::new(None) };
    static ACTOR: Cell<u64> = const { Cell::new(0) };
}

/// Forgets everything, and notes what happens from now on.
pub(crate) fn begin() {
    EVENTS.set(Some(Vec::new()));
}

/// Takes this for what has happened, and notes what happens from now on.
pub(crate) fn go_on(events: Vec<Event>) {
    EVENTS.set(Some(events));
}

/// What has happened.
pub(crate) fn end() -> Vec<Event> {
    EVENTS.take().unwrap_or_default()
}

/// What has happened so far.
pub(crate) fn so_far() -> Vec<Event> {
    EVENTS.with_borrow(|events| events.clone().unwrap_or_default())
}

/// How much has happened so far.
pub(crate) fn moment() -> usize {
    EVENTS.with_borrow(|events| events.as_ref().map_or(0, Vec::len))
}

/// For whom things are done now.
pub(crate) fn actor() -> u64 {
    ACTOR.get()
}

/// From now on things are done for this one.
pub(crate) fn act_for(actor: u64) {
    ACTOR.set(actor);
}

pub(crate) fn note(what: What) {
    note_for(actor(), what);
}

pub(crate) fn note_for(actor: u64, what: What) {
    EVENTS.with_borrow_mut(|events| {
        if let Some(events) = events {
            events.push(Event { actor, what });
        }
    });
}
