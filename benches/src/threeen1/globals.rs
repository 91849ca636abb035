//! What a store has to offer to be a contestant.
//!
//! A database holds *steps* (keys and values are bytes: numbers as they are spelled) and *names*:
//! few numbers that streams share. A [`Globals`] is the database, a [`Stream`] is what one of the
//! parallel streams holds of it. Steps are set one by one, each durable and visible by itself as far
//! as the store's setting goes, or a path at a time; names change in transactions only, so that
//! streams can claim blocks, raise a maximum and add up counts without any lock outside the database.

use crate::failure::Failure;

/// A shared number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Last integer of a block, counted from 1; `Limit(0)` is the integer before the first block.
    Limit(u64),
    /// How many streams wanted a block; the first one has it.
    Claim(u64),
    /// Longest sequence.
    Result,
    /// Highest integer met.
    Highest,
    /// Look-ups of all streams.
    Reads,
    /// Steps set by all streams.
    Updates,
}

impl Name {
    /// The name as a key: one byte for the kind, eight for the block, largest byte first.
    pub fn key(self) -> [u8; 9] {
        let (kind, block) = match self {
            Self::Limit(block) => (1, block),
            Self::Claim(block) => (2, block),
            Self::Result => (3, 0),
            Self::Highest => (4, 0),
            Self::Reads => (5, 0),
            Self::Updates => (6, 0),
        };
        let mut key = [kind; 9];
        key[1..].copy_from_slice(&block.to_be_bytes());
        key
    }
}

/// What a stream adds at its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Look-ups.
    pub reads: u64,
    /// Steps set.
    pub updates: u64,
    /// Highest integer met.
    pub highest: u64,
}

/// One stream's side of a database.
pub trait Stream {
    /// Whether a step is there: the look-up that is counted.
    ///
    /// # Errors
    /// Those of the store, as everywhere here.
    fn exists(&mut self, key: &[u8]) -> Result<bool, Failure>;

    /// A step.
    ///
    /// # Errors
    /// Those of the store.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Sets a step, as an update of its own.
    ///
    /// # Errors
    /// Those of the store.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Sets all steps of a path and raises the result, in one transaction.
    ///
    /// # Errors
    /// Those of the store; then nothing has changed.
    fn set_path(&mut self, path: &Pairs, result: u64) -> Result<(), Failure>;

    /// A shared number, as it was at some time since this stream's last change.
    ///
    /// # Errors
    /// Those of the store.
    fn read(&mut self, name: Name) -> Result<Option<u64>, Failure>;

    /// Changes shared numbers in one transaction; those that are absent count as zero. The function
    /// may run more than once.
    ///
    /// # Errors
    /// Those of the store; then nothing has changed.
    fn change<const N: usize>(
        &mut self,
        names: [Name; N],
        change: impl Fn(&mut [u64; N]),
    ) -> Result<[u64; N], Failure>;

    /// Adds one to a shared number and says what it is then.
    ///
    /// # Errors
    /// Those of the store.
    fn increment(&mut self, name: Name) -> Result<u64, Failure> {
        Ok(self.change([name], |[value]| *value += 1)?[0])
    }

    /// Raises a shared number to at least `value`.
    ///
    /// # Errors
    /// Those of the store.
    fn raise(&mut self, name: Name, value: u64) -> Result<(), Failure> {
        // Such a number never falls: one that was high enough still is.
        if self.read(name)?.is_some_and(|held| held >= value) {
            return Ok(());
        }
        self.change([name], |[held]| *held = value.max(*held))?;
        Ok(())
    }

    /// Adds a stream's counts to those of all, in one transaction.
    ///
    /// # Errors
    /// Those of the store.
    fn add_counts(&mut self, counts: Counts) -> Result<(), Failure> {
        let names = [Name::Reads, Name::Updates, Name::Highest];
        self.change(names, |[reads, updates, highest]| {
            *reads += counts.reads;
            *updates += counts.updates;
            *highest = counts.highest.max(*highest);
        })?;
        Ok(())
    }
}

/// A contestant's database, shared by all streams.
pub trait Globals: Sync {
    /// One stream's side.
    type Stream<'a>: Stream
    where
        Self: 'a;

    /// A side for one more stream, in whose thread this is called.
    ///
    /// # Errors
    /// Those of the store, as everywhere here.
    fn stream(&self) -> Result<Self::Stream<'_>, Failure>;

    /// Steps in the database.
    ///
    /// # Errors
    /// Those of the store.
    fn nodes(&self) -> Result<u64, Failure>;

    /// Bytes of the database's files; `None` where there are none to be measured.
    fn stored_bytes(&self) -> Option<u64>;

    /// Removes all steps and names.
    ///
    /// # Errors
    /// Those of the store.
    fn clear(&mut self) -> Result<(), Failure>;

    /// Ends an epoch: all that is committed is on disk after this. Called every few seconds beside
    /// the streams, where the durability is `epoch`.
    ///
    /// # Errors
    /// Those of the store.
    fn end_epoch(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Keys and values, one after the other in the same memory, so that a path costs no allocation.
#[derive(Debug, Default)]
pub struct Pairs {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    values: Vec<u8>,
    value_ends: Vec<usize>,
}

impl Pairs {
    /// Removes all pairs and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
    }

    /// Keys that are there.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Adds a key, whose value comes later.
    pub fn push_key(&mut self, key: &[u8]) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
    }

    /// Adds the value of the first key that has none, by what `write` appends.
    pub fn push_value(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.values);
        self.value_ends.push(self.values.len());
        debug_assert!(self.value_ends.len() <= self.key_ends.len(), "no such key");
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// Keys that have values, in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        slices(&self.keys, &self.key_ends).zip(slices(&self.values, &self.value_ends))
    }
}

fn slices<'a>(
    bytes: &'a [u8],
    ends: &'a [usize],
) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator {
    (0..ends.len()).map(move |at| {
        let start = at.checked_sub(1).map_or(0, |before| ends[before]);
        &bytes[start..ends[at]]
    })
}
