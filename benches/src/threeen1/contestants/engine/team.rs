//! Streams that wait for nothing, and whoever drives them.
//!
//! # A round
//! A walk goes out, from integer to integer, until it finds one that is set, or 1; then it goes back
//! on its path and sets what it met. Each round moves every walk by one integer: those on their way
//! out want a look-up each, which is one batch; those on their way back want an update each, which is
//! another. A stream whose walks are few begins others, at the next starts of its block.
//!
//! So whatever is set, all that comes after it in its sequence has been set before, in an earlier
//! batch: a run that is cut off at any moment leaves no gap that a later walk would pass over.
//!
//! Look-ups bring the steps with them, so a walk's end needs no other call. What two walks of a team
//! have both set out for is set twice, as by two streams; the counts say so.

use std::time::Instant;

use ancile::{
    GlobalEntries, GlobalKey, GlobalKeys, GlobalVerbs, Globals, Isolation, Number,
    TransactionGlobals, TransactionOptions, Verbs,
};

use crate::failure::Failure;
use crate::threeen1::globals::{Counts, Name};
use crate::threeen1::walk::{Unit, next};
use crate::threeen1::words::Spelling;

/// Names of the globals.
pub(super) const NAMES: [&str; 7] = [
    "step", "limit", "claim", "result", "highest", "reads", "updates",
];

/// Walks of a team that are under way, and of one stream at least.
const WALKS: usize = 1024;
const STREAM_WALKS_MIN: usize = 64;

/// What of a run is not in its line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) spelling: Spelling,
    pub(super) unit: Unit,
}

/// What a team says at its end.
pub(super) struct Ended {
    pub(super) finish: Instant,
    /// Bytes of all keys and values that were set.
    pub(super) bytes: u64,
}

/// Some streams, driven together.
pub(super) struct Team {
    terms: Terms,
    streams: Vec<Stream>,
    step: GlobalKey,
    keys: GlobalKeys,
    entries: GlobalEntries,
    /// What was found under each key.
    found: Vec<Option<u64>>,
    text: Vec<u8>,
    value: Vec<u8>,
    /// Paths at rest, for their memory.
    spare: Vec<Vec<u64>>,
    /// What the database knows at least, by this team.
    longest: u64,
    highest: u64,
    bytes: u64,
}

/// A stream: its block, and its walks.
struct Stream {
    counts: Counts,
    block: u64,
    /// The next start, and the last one of the block.
    start: u64,
    limit: u64,
    /// There are no more blocks.
    is_last: bool,
    walks: Vec<Walk>,
    walks_max: usize,
}

/// A sequence on its way.
struct Walk {
    /// Integers that were not found and are not set yet.
    path: Vec<u64>,
    way: Way,
}

/// Where a walk is heading.
enum Way {
    /// Out; this integer is looked up.
    Out(u64),
    /// Back; the last integer of the path takes so many steps.
    Back(u64),
}

/// The key of a shared number.
pub(super) fn key_of(name: Name) -> Result<GlobalKey, Failure> {
    let (name, block) = match name {
        Name::Limit(block) => ("limit", Some(block)),
        Name::Claim(block) => ("claim", Some(block)),
        Name::Result => ("result", None),
        Name::Highest => ("highest", None),
        Name::Reads => ("reads", None),
        Name::Updates => ("updates", None),
    };
    let key = names(name)?;
    Ok(match block {
        Some(block) => key.child(block)?,
        None => key,
    })
}

/// The key above all of a name.
pub(super) fn names(name: &str) -> Result<GlobalKey, Failure> {
    Ok(GlobalKey::new(name)?)
}

/// A shared number; 0 if there is none.
pub(super) fn number<S: Verbs>(
    globals: &mut GlobalVerbs<'_, S>,
    name: Name,
) -> Result<u64, Failure> {
    let number = globals.get_number(&key_of(name)?)?;
    positive(number.unwrap_or(Number::ZERO))
}

fn positive(number: Number) -> Result<u64, Failure> {
    let integer = number
        .to_i64()
        .and_then(|number| u64::try_from(number).ok());
    integer.ok_or_else(|| Failure::new(format!("{number} is no count")))
}

impl Team {
    /// Some streams that have been nowhere.
    pub(super) fn new(terms: Terms, streams: usize) -> Result<Self, Failure> {
        let walks_max = (WALKS / streams.max(1)).max(STREAM_WALKS_MIN);
        let stream = || Stream {
            counts: Counts::default(),
            block: 0,
            start: 1,
            limit: 0,
            is_last: false,
            walks: Vec::new(),
            walks_max,
        };
        Ok(Self {
            terms,
            streams: std::iter::repeat_with(stream).take(streams).collect(),
            step: names("step")?,
            keys: GlobalKeys::new(),
            entries: GlobalEntries::new(),
            found: Vec::new(),
            text: Vec::new(),
            value: Vec::new(),
            spare: Vec::new(),
            longest: 0,
            highest: 0,
            bytes: 0,
        })
    }

    /// Drives the streams to their end.
    pub(super) fn run<S: Verbs>(
        mut self,
        client: &mut S,
        globals: &Globals,
    ) -> Result<Ended, Failure> {
        while !self.streams.is_empty() {
            let mut at = 0;
            while at < self.streams.len() {
                self.fill(at, &mut client.globals(globals))?;
                if self.streams[at].walks.is_empty() {
                    let stream = self.streams.swap_remove(at);
                    add_counts(client, globals, stream.counts)?;
                } else {
                    at += 1;
                }
            }
            self.look_up(&mut client.globals(globals))?;
            self.go_on(client, globals)?;
        }
        Ok(Ended {
            finish: Instant::now(),
            bytes: self.bytes,
        })
    }

    /// Begins walks, at starts of the block at hand and of those that can be claimed.
    fn fill<S: Verbs>(
        &mut self,
        stream: usize,
        globals: &mut GlobalVerbs<'_, S>,
    ) -> Result<(), Failure> {
        let stream = &mut self.streams[stream];
        while stream.walks.len() < stream.walks_max {
            if stream.start <= stream.limit {
                let mut path = self.spare.pop().unwrap_or_default();
                path.clear();
                let integer = stream.start;
                let way = Way::Out(integer);
                stream.walks.push(Walk { path, way });
                stream.start += 1;
                continue;
            }
            if stream.is_last {
                return Ok(());
            }
            stream.block += 1;
            let limit = number(globals, Name::Limit(stream.block))?;
            let before = number(globals, Name::Limit(stream.block - 1))?;
            if limit == 0 {
                stream.is_last = true;
            } else if globals.increment(&key_of(Name::Claim(stream.block))?, 1)? == 1.into() {
                (stream.start, stream.limit) = (before + 1, limit);
            }
        }
        Ok(())
    }

    /// Looks up the integer of each walk on its way out.
    fn look_up<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>) -> Result<(), Failure> {
        let Self {
            terms,
            streams,
            step,
            keys,
            found,
            text,
            ..
        } = self;
        keys.clear();
        for stream in &mut *streams {
            for walk in &stream.walks {
                if let Way::Out(integer) = walk.way {
                    stream.counts.reads += 1;
                    push_key(keys, step, terms.spelling, integer, text)?;
                }
            }
        }
        found.clear();
        found.resize(ancile::KeyList::len(keys), None);
        let mut wrong = None;
        globals.get_each(&*keys, |at, value| {
            found[at] = value.and_then(|value| match terms.spelling.decode(value) {
                Ok(steps) => Some(steps),
                Err(failure) => {
                    wrong.get_or_insert(failure);
                    None
                }
            });
        })?;
        wrong.map_or(Ok(()), Err)
    }

    /// Turns the walks that found something, and moves all others by one integer.
    fn go_on<S: Verbs>(&mut self, client: &mut S, globals: &Globals) -> Result<(), Failure> {
        let Self { terms, streams, .. } = self;
        let mut answers = self.found.iter();
        let (mut longest, mut highest) = (0, 0);
        let mut turned = Vec::new();
        self.entries.clear();
        for stream in streams {
            // The answers are in the order of the walks, so none is removed before all have theirs.
            for walk in &mut stream.walks {
                let integer = match walk.way {
                    Way::Out(integer) => integer,
                    Way::Back(_) => continue,
                };
                let found = answers.next().copied().flatten();
                if found.is_some() || integer == 1 {
                    let known = found.unwrap_or(0);
                    longest = longest.max(known + walk.path.len() as u64);
                    stream.counts.updates += walk.path.len() as u64;
                    walk.way = Way::Back(known + 1);
                    if terms.unit == Unit::Path {
                        turned.push((std::mem::take(&mut walk.path), known));
                    }
                } else {
                    walk.path.push(integer);
                    let after =
                        next(integer).ok_or_else(|| Failure::new("a sequence leaves 64 bits"))?;
                    walk.way = Way::Out(after);
                    highest = highest.max(after);
                    stream.counts.highest = stream.counts.highest.max(after);
                }
            }
        }
        // Before the first step of these paths is there, so that who finds one need not look at it.
        self.longest = raise(client, globals, Name::Result, longest, self.longest)?;
        self.highest = raise(client, globals, Name::Highest, highest, self.highest)?;
        self.set_paths(client, globals, &turned)?;
        self.go_back(&mut client.globals(globals))
    }

    /// Sets the steps of the last integer of each walk on its way back, each an update of its own.
    fn go_back<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>) -> Result<(), Failure> {
        let spelling = self.terms.spelling;
        for stream in &mut self.streams {
            let mut at = 0;
            while let Some(walk) = stream.walks.get_mut(at) {
                let Way::Back(steps) = &mut walk.way else {
                    at += 1;
                    continue;
                };
                let Some(integer) = walk.path.pop() else {
                    self.spare.push(stream.walks.swap_remove(at).path);
                    continue;
                };
                self.value.clear();
                spelling.encode(*steps, &mut self.value);
                self.text.clear();
                spelling.encode(integer, &mut self.text);
                self.bytes += (self.text.len() + self.value.len()) as u64;
                match spelling {
                    Spelling::Digits => {
                        self.entries.push_child(&self.step, integer, &self.value)?
                    }
                    Spelling::Words => {
                        self.entries
                            .push_child(&self.step, &self.text[..], &self.value)?;
                    }
                }
                *steps += 1;
                at += 1;
            }
        }
        Ok(globals.set_batch(&self.entries)?)
    }

    /// Sets the steps of each whole path, by what is known of its end, in one transaction.
    fn set_paths<S: Verbs>(
        &mut self,
        client: &mut S,
        globals: &Globals,
        turned: &[(Vec<u64>, u64)],
    ) -> Result<(), Failure> {
        let spelling = self.terms.spelling;
        for (path, known) in turned {
            let mut entries = Vec::new();
            for (&integer, steps) in path.iter().rev().zip(known + 1..) {
                let (mut text, mut value) = (Vec::new(), Vec::new());
                spelling.encode(integer, &mut text);
                spelling.encode(steps, &mut value);
                self.bytes += (text.len() + value.len()) as u64;
                entries.push((self.step.child(&text[..])?, value));
            }
            client.transaction(|transaction| {
                let mut globals = transaction.globals(globals);
                for (key, value) in &entries {
                    globals.set(key, value)?;
                }
                Ok::<_, ancile::Error>(())
            })?;
        }
        Ok(())
    }
}

#[inline]
fn push_key(
    keys: &mut GlobalKeys,
    step: &GlobalKey,
    spelling: Spelling,
    integer: u64,
    text: &mut Vec<u8>,
) -> Result<(), Failure> {
    match spelling {
        Spelling::Digits => keys.push_child(step, integer)?,
        Spelling::Words => {
            text.clear();
            spelling.encode(integer, text);
            keys.push_child(step, &text[..])?;
        }
    }
    Ok(())
}

/// Raises a shared number, in a transaction, if it is not known to be high enough; how high it is then
/// at least.
fn raise<S: Verbs>(
    client: &mut S,
    globals: &Globals,
    name: Name,
    value: u64,
    known: u64,
) -> Result<u64, Failure> {
    if value <= known {
        return Ok(known);
    }
    let key = key_of(name)?;
    let held = client.transaction_with(strict(), |transaction| {
        let mut globals = transaction.globals(globals);
        raise_in(&mut globals, &key, value)
    })?;
    positive(held)
}

/// Raises a number to at least `value`; what it is then.
fn raise_in<S: Verbs>(
    globals: &mut TransactionGlobals<'_, '_, S>,
    key: &GlobalKey,
    value: u64,
) -> Result<Number, ancile::Error> {
    let value = Number::from(value);
    let held = globals.get_number(key)?.unwrap_or(Number::ZERO);
    if held < value {
        globals.set(key, value.to_string())?;
    }
    Ok(held.max(value))
}

/// What was read must still be so when it is changed.
fn strict() -> TransactionOptions {
    TransactionOptions::new(Isolation::Serializable)
}

/// Adds a stream's counts to those of all, in one transaction.
fn add_counts<S: Verbs>(client: &mut S, globals: &Globals, counts: Counts) -> Result<(), Failure> {
    let (reads, updates) = (key_of(Name::Reads)?, key_of(Name::Updates)?);
    let highest = key_of(Name::Highest)?;
    client.transaction_with(strict(), |transaction| {
        let mut globals = transaction.globals(globals);
        globals.increment(&reads, counts.reads)?;
        globals.increment(&updates, counts.updates)?;
        raise_in(&mut globals, &highest, counts.highest)
    })?;
    Ok(())
}
