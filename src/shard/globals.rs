//! The globals of the shard at hand, with no hop.

use std::ops::ControlFlow;

use crate::arena::Arena;
use crate::collation::{EntryList, GlobalKey, GlobalKeyRef, KeyList, KeyRange, Number};
use crate::error::{Error, Result};
use crate::limits::{GLOBALS_PER_GROUP, VALUE_BYTES_MAX};
use crate::table::{Data, Direction, GlobalPart, Globals, Span, Strings, siblings};
use crate::transaction::UndoLog;

/// Globals in one shard, for code that runs there.
///
/// In a transaction ([`Context::globals`](crate::Context::globals)) changes are undone with it; in
/// resident work ([`Resident::own_globals`](crate::Resident::own_globals)) each operation is a
/// transaction of its own. Keys of other shards are refused by changes and found by nobody.
pub struct LocalGlobals<'a> {
    inner: LocalTree<'a>,
    globals: &'a Globals,
    shards: usize,
    /// A key, or a bound of a range.
    key: Vec<u8>,
    other: Vec<u8>,
}

/// As [`LocalGlobals`], of encoded keys that their client has routed.
pub(crate) struct LocalTree<'a> {
    part: &'a mut GlobalPart,
    arena: &'a mut Arena,
    undo: Option<(&'a mut UndoLog, u32)>,
}

/// The way to go on one level of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Next,
    Previous,
    First,
    Last,
}

impl<'a> LocalTree<'a> {
    pub(super) fn new(
        (part, arena): (&'a mut GlobalPart, &'a mut Arena),
        undo: Option<(&'a mut UndoLog, u32)>,
    ) -> Self {
        Self { part, arena, undo }
    }

    /// Ends the scope of an operation that is a transaction of its own.
    #[inline]
    fn end(&mut self) {
        if self.undo.is_none() && self.arena.is_logged() {
            self.arena.end_scope();
        }
    }

    #[inline]
    pub(crate) fn get<T>(&self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        self.part.get(self.arena, key, look)
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.part.check_writable(self.arena)?;
        check_value(value)?;
        self.note(key, Some(value.len()))?;
        let replaced = self.part.set(self.arena, key, value);
        self.end();
        replaced
    }

    fn note(&mut self, key: &[u8], new_bytes: Option<usize>) -> Result<()> {
        match &mut self.undo {
            None => Ok(()),
            Some((undo, table)) => {
                let log = (&mut undo.globals, *table);
                self.part.note(self.arena, log, key, new_bytes)
            }
        }
    }

    /// Sets nodes, each for itself; `entry` gives one of them, by number.
    #[inline]
    pub(crate) fn set_all<'e>(
        &mut self,
        count: usize,
        entry: impl Fn(usize) -> (&'e [u8], &'e [u8]),
    ) -> Result<()> {
        self.part.check_writable(self.arena)?;
        if self.undo.is_some() {
            return (0..count).try_for_each(|at| {
                let (key, value) = entry(at);
                self.set(key, value).map(drop)
            });
        }
        let mut group: [(&[u8], &[u8]); GLOBALS_PER_GROUP] = [(&[], &[]); GLOBALS_PER_GROUP];
        let mut result = Ok(());
        for first in (0..count).step_by(GLOBALS_PER_GROUP) {
            let group = &mut group[..GLOBALS_PER_GROUP.min(count - first)];
            for (at, place) in group.iter_mut().enumerate() {
                *place = entry(first + at);
            }
            result = result.and(self.part.set_each(self.arena, group));
            self.end();
        }
        result
    }

    /// Looks at nodes, in order; `key` gives one of them, by number.
    #[inline]
    pub(crate) fn get_all<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        mut visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut group: [&[u8]; GLOBALS_PER_GROUP] = [&[]; GLOBALS_PER_GROUP];
        for first in (0..count).step_by(GLOBALS_PER_GROUP) {
            let group = &mut group[..GLOBALS_PER_GROUP.min(count - first)];
            for (at, place) in group.iter_mut().enumerate() {
                *place = key(first + at);
            }
            self.part
                .get_each(self.arena, group, |at, value| visit(first + at, value))?;
        }
        Ok(())
    }

    pub(crate) fn increment(&mut self, key: &[u8], by: Number) -> Result<Number> {
        self.part.check_writable(self.arena)?;
        let mut text = Vec::with_capacity(24);
        let sum = self.part.sum(self.arena, key, by, &mut text)?;
        self.set(key, &text)?;
        Ok(sum)
    }

    /// Adds to nodes, each for itself, in order.
    pub(crate) fn increment_all<'k>(
        &mut self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        by: Number,
        mut visit: impl FnMut(usize, Number),
    ) -> Result<()> {
        for first in (0..count).step_by(GLOBALS_PER_GROUP) {
            let last = count.min(first + GLOBALS_PER_GROUP);
            // So that their memory is there.
            self.get_all(last - first, |at| key(first + at), |_, _| {})?;
            for at in first..last {
                visit(at, self.increment(key(at), by)?);
            }
        }
        Ok(())
    }

    /// Removes all nodes of a range; says how many there were.
    pub(crate) fn kill(&mut self, span: Span<'_>) -> Result<u64> {
        self.part.check_writable(self.arena)?;
        if let Some((undo, table)) = &mut self.undo {
            let log = (&mut undo.globals, *table);
            self.part.note_span(self.arena, log, span)?;
        }
        let killed = self.part.remove_span(self.arena, span);
        self.end();
        killed
    }

    /// What there is at a key.
    pub(crate) fn data(&self, key: &[u8]) -> Result<Data> {
        let has_value = self.get(key, |value| value.is_some())?;
        let (mut start, mut end, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let components = siblings::components(key);
        let span = Span {
            start: siblings::below(components, &mut start),
            end: siblings::behind(components, &mut end),
        };
        let has_descendants = self.part.first(self.arena, span, &mut found)?;
        Ok(Data {
            has_value,
            has_descendants,
        })
    }

    /// Goes on from a key on its level, or to an end of the level below it. What is found is written
    /// into `key`.
    pub(crate) fn step(&self, step: Step, key: &mut Vec<u8>, bound: &mut Vec<u8>) -> Result<bool> {
        let from = std::mem::take(key);
        let components = siblings::components(&from);
        let is_end = matches!(step, Step::First | Step::Last);
        let above = if is_end {
            components
        } else {
            siblings::parent(components)
        };
        let mut end = Vec::new();
        let found = match step {
            Step::Next => {
                let start = siblings::behind(components, bound).unwrap_or_default();
                let end = siblings::behind(above, &mut end);
                self.part.first(self.arena, Span { start, end }, key)?
            }
            Step::First => {
                let start = siblings::below(above, bound);
                let end = siblings::behind(above, &mut end);
                self.part.first(self.arena, Span { start, end }, key)?
            }
            Step::Previous | Step::Last => {
                let start = siblings::below(above, bound);
                let end = if is_end {
                    siblings::behind(above, &mut end)
                } else {
                    Some(components)
                };
                self.part.last(self.arena, Span { start, end }, key)?
            }
        };
        if found && !siblings::cut(key, above) {
            return Err(self.damaged());
        }
        Ok(found)
    }

    fn damaged(&self) -> Error {
        Error::Damaged {
            shard: self.part.shard(),
        }
    }

    /// The key of stored bytes.
    pub(crate) fn key_of(&self, stored: &[u8]) -> Result<GlobalKey> {
        GlobalKey::from_bytes(stored).map_err(|_| self.damaged())
    }

    /// Visits the nodes of a range.
    pub(crate) fn scan(
        &self,
        span: Span<'_>,
        direction: Direction,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.part.scan(self.arena, span, direction, visit)
    }

    /// As [`scan`](Self::scan), of as many as travel together; whether those are all.
    pub(crate) fn collect(
        &self,
        span: Span<'_>,
        direction: Direction,
        bounds: (usize, usize),
        found: &mut Strings,
    ) -> Result<bool> {
        self.part
            .collect(self.arena, span, direction, bounds, found)
    }

    pub(crate) fn count(&self, span: Span<'_>) -> Result<u64> {
        self.part.count(self.arena, span)
    }

    pub(crate) fn len(&self) -> Result<u64> {
        self.part.len(self.arena)
    }

    pub(crate) fn bytes(&self) -> Result<u64> {
        self.part.bytes(self.arena)
    }
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes: value.len() });
    }
    Ok(())
}

/// A range of keys as bounds of bytes.
pub(crate) fn span_of(range: &KeyRange) -> Span<'_> {
    Span {
        start: &range.start,
        end: Some(&range.end),
    }
}

impl<'a> LocalGlobals<'a> {
    pub(super) fn new(inner: LocalTree<'a>, globals: &'a Globals, shards: usize) -> Self {
        Self {
            inner,
            globals,
            shards,
            key: Vec::new(),
            other: Vec::new(),
        }
    }

    /// A key to be changed must belong to this shard.
    #[inline]
    fn check_own(&self, key: &[u8]) -> Result<()> {
        let owner = self.globals.routing().shard_of(key, self.shards);
        let shard = self.inner.part.shard();
        if owner == shard {
            Ok(())
        } else {
            Err(Error::OtherShardsKey { owner, shard })
        }
    }

    /// The value of a node.
    pub fn get(&self, key: &GlobalKey) -> Result<Option<Vec<u8>>> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Looks at the value of a node, where it lies.
    #[inline]
    pub fn get_with<T>(&self, key: &GlobalKey, look: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        self.inner.get(key.as_bytes(), look)
    }

    /// Looks at the values of nodes, in order, their memory asked for in time.
    #[inline]
    pub fn get_each<K: KeyList + ?Sized>(
        &self,
        keys: &K,
        visit: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.inner.get_all(keys.len(), |at| keys.key(at), visit)
    }

    /// Sets a node; says whether it had a value before.
    pub fn set(&mut self, key: &GlobalKey, value: impl AsRef<[u8]>) -> Result<bool> {
        self.check_own(key.as_bytes())?;
        self.inner.set(key.as_bytes(), value.as_ref())
    }

    /// Sets nodes, their memory asked for in time. All keys and values are checked before.
    #[inline]
    pub fn set_batch<E: EntryList + ?Sized>(&mut self, entries: &E) -> Result<()> {
        for at in 0..entries.len() {
            check_value(entries.value(at))?;
            self.check_own(entries.key(at))?;
        }
        self.inner
            .set_all(entries.len(), |at| (entries.key(at), entries.value(at)))
    }

    /// Adds to the number that a node is worth; says what it is then. See
    /// [`GlobalVerbs::increment`](crate::GlobalVerbs::increment).
    pub fn increment(&mut self, key: &GlobalKey, by: impl Into<Number>) -> Result<Number> {
        self.check_own(key.as_bytes())?;
        self.inner.increment(key.as_bytes(), by.into())
    }

    /// Adds the same to many nodes, in order.
    pub fn increment_batch<K: KeyList + ?Sized>(
        &mut self,
        keys: &K,
        by: impl Into<Number>,
        visit: impl FnMut(usize, Number),
    ) -> Result<()> {
        for at in 0..keys.len() {
            self.check_own(keys.key(at))?;
        }
        let key = |at| keys.key(at);
        self.inner.increment_all(keys.len(), key, by.into(), visit)
    }

    /// Removes a node and all below it that are in this shard; says how many there were.
    pub fn kill(&mut self, key: &GlobalKey) -> Result<u64> {
        self.inner.kill(span_of(&key.subtree()))
    }

    /// What there is at a key, in this shard.
    pub fn data(&self, key: &GlobalKey) -> Result<Data> {
        self.inner.data(key.as_bytes())
    }

    /// The next key of the same level in this shard: one that has a value, or descendants.
    pub fn next(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(key, Step::Next)
    }

    /// The key of the same level before this one in this shard.
    pub fn previous(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(key, Step::Previous)
    }

    /// The first key of the level below in this shard.
    pub fn first(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(key, Step::First)
    }

    /// The last key of the level below in this shard.
    pub fn last(&mut self, key: &GlobalKey) -> Result<Option<GlobalKey>> {
        self.step(key, Step::Last)
    }

    fn step(&mut self, key: &GlobalKey, step: Step) -> Result<Option<GlobalKey>> {
        self.key.clear();
        self.key.extend_from_slice(key.as_bytes());
        if self.inner.step(step, &mut self.key, &mut self.other)? {
            self.inner.key_of(&self.key).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Visits the nodes of this shard that begin with a key, itself included, in order, until `visit`
    /// breaks.
    pub fn scan(
        &self,
        key: &GlobalKey,
        visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.scan_range(&key.subtree(), visit)
    }

    /// Visits the nodes of this shard in a range, in order, until `visit` breaks.
    pub fn scan_range(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(GlobalKeyRef<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut is_damaged = false;
        let visit = |key: &[u8], value: &[u8]| match GlobalKeyRef::of_stored(key) {
            Some(key) => visit(key, value),
            None => {
                is_damaged = true;
                ControlFlow::Break(())
            }
        };
        self.inner.scan(span_of(range), Direction::Forward, visit)?;
        if is_damaged {
            return Err(self.inner.damaged());
        }
        Ok(())
    }

    /// Nodes of this shard that begin with a key, itself included.
    pub fn count(&self, key: &GlobalKey) -> Result<u64> {
        self.inner.count(span_of(&key.subtree()))
    }

    /// Nodes of this shard.
    pub fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    /// Whether this shard has no nodes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Bytes of memory of this shard's nodes.
    pub fn bytes(&self) -> Result<u64> {
        self.inner.bytes()
    }
}
