//! Streams that wait for nothing, and whoever drives them.
//!
//! # A round
//! Every walk of every stream wants one look-up: they go out as one batch. A walk whose integer was
//! found, or is 1, has come to its end; its path is known then, and goes with those of others into
//! one batch of updates. The others go on to their next integer. A stream whose walks are few begins
//! others, at the next starts of its block.
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
/// Integers of a block for each walk under way in it: walks that are near each other are soon on the same
/// way, and do it twice.
const INTERVAL: u64 = 64;

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
    /// Walks that may be under way in the block at hand, and in any.
    walks_max: usize,
    walks_most: usize,
}

/// A sequence on its way.
struct Walk {
    /// Integers that were not found.
    path: Vec<u64>,
    /// The one that is looked up.
    integer: u64,
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
        let walks_most = (WALKS / streams.max(1)).max(STREAM_WALKS_MIN);
        let stream = || Stream {
            counts: Counts::default(),
            block: 0,
            start: 1,
            limit: 0,
            is_last: false,
            walks: Vec::new(),
            walks_max: walks_most,
            walks_most,
        };
        Ok(Self {
            terms,
            streams: std::iter::repeat_with(stream).take(streams).collect(),
            step: names("step")?,
            keys: GlobalKeys::new(),
            entries: GlobalEntries::new(),
            found: Vec::new(),
            text: Vec::new(),
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
                stream.walks.push(Walk { path, integer });
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
                let walks = usize::try_from((limit - before) / INTERVAL).unwrap_or(WALKS);
                stream.walks_max = walks.clamp(1, stream.walks_most);
            }
        }
        Ok(())
    }

    /// Looks up the integer of each walk.
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
            stream.counts.reads += stream.walks.len() as u64;
            for walk in &stream.walks {
                push_key(keys, step, terms.spelling, walk.integer, text)?;
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

    /// Goes on with each walk, and sets what those know that have come to their end.
    fn go_on<S: Verbs>(&mut self, client: &mut S, globals: &Globals) -> Result<(), Failure> {
        let mut answers = self.found.iter();
        let mut ended = Vec::new();
        let (mut longest, mut highest) = (0, 0);
        for stream in &mut self.streams {
            // Walks that end are taken out behind the answers, which are in their order.
            let mut ends = Vec::new();
            for (at, walk) in stream.walks.iter_mut().enumerate() {
                let found = answers.next().copied().flatten();
                if found.is_some() || walk.integer == 1 {
                    ends.push((at, walk.path.len() as u64 + found.unwrap_or(0)));
                } else {
                    walk.path.push(walk.integer);
                    walk.integer = next(walk.integer)
                        .ok_or_else(|| Failure::new("a sequence leaves 64 bits"))?;
                    highest = walk.integer.max(highest);
                    stream.counts.highest = stream.counts.highest.max(walk.integer);
                }
            }
            for (at, steps) in ends.into_iter().rev() {
                let walk = stream.walks.swap_remove(at);
                if walk.path.is_empty() {
                    self.spare.push(walk.path);
                } else {
                    longest = steps.max(longest);
                    stream.counts.updates += walk.path.len() as u64;
                    ended.push((walk.path, steps));
                }
            }
        }
        // Before the first step of these paths is there, so that who finds one need not look at it.
        self.longest = raise(client, globals, Name::Result, longest, self.longest)?;
        self.highest = raise(client, globals, Name::Highest, highest, self.highest)?;
        match self.terms.unit {
            Unit::Update => self.set_steps(&mut client.globals(globals), &ended)?,
            Unit::Path => self.set_paths(client, globals, &ended)?,
        }
        self.spare.extend(ended.into_iter().map(|(path, _)| path));
        Ok(())
    }

    /// Sets the steps of paths, each an update of its own.
    fn set_steps<S: Verbs>(
        &mut self,
        globals: &mut GlobalVerbs<'_, S>,
        ended: &[(Vec<u64>, u64)],
    ) -> Result<(), Failure> {
        let spelling = self.terms.spelling;
        self.entries.clear();
        for (path, steps) in ended {
            for (met, &integer) in path.iter().enumerate() {
                let set = (integer, steps - met as u64);
                let (entries, step) = (&mut self.entries, &self.step);
                self.bytes += push_entry(entries, step, spelling, set, &mut self.text)?;
            }
        }
        Ok(globals.set_batch(&self.entries)?)
    }

    /// Sets the steps of each path in one transaction.
    fn set_paths<S: Verbs>(
        &mut self,
        client: &mut S,
        globals: &Globals,
        ended: &[(Vec<u64>, u64)],
    ) -> Result<(), Failure> {
        let spelling = self.terms.spelling;
        for (path, steps) in ended {
            let mut entries = Vec::new();
            for (met, &integer) in path.iter().enumerate() {
                let (mut text, mut value) = (Vec::new(), Vec::new());
                spelling.encode(integer, &mut text);
                spelling.encode(steps - met as u64, &mut value);
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

/// Adds the key of an integer.
#[inline]
pub(super) fn push_key(
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

/// Adds an integer and its steps; how many bytes key and value have.
#[inline]
pub(super) fn push_entry(
    entries: &mut GlobalEntries,
    step: &GlobalKey,
    spelling: Spelling,
    (integer, steps): (u64, u64),
    text: &mut Vec<u8>,
) -> Result<u64, Failure> {
    text.clear();
    spelling.encode(integer, text);
    let key_bytes = text.len();
    spelling.encode(steps, text);
    let (key, value) = text.split_at(key_bytes);
    match spelling {
        Spelling::Digits => entries.push_child(step, integer, value)?,
        Spelling::Words => entries.push_child(step, key, value)?,
    }
    Ok(text.len() as u64)
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
