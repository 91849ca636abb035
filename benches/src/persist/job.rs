//! The job: four phases over a phone book, one query a row, and its judge.
//!
//! 1. create all rows;
//! 2. find all in sequence, by name;
//! 3. find all in random order, by name, or by telephone where there are two indexes;
//! 4. delete all, by name.
//!
//! The texts of a row are written inside the timed loops, those to ask with as well as those to
//! compare with: every row found is compared with what was stored. The random order is the original's,
//! (i * 73) mod rows, where 73 gives way to the next number that has no factor in common with the rows,
//! lest some are never asked for.

use std::time::Instant;

use super::book::{Book, Record};
use crate::failure::Failure;

/// Factor of the random order.
const STRIDE_MIN: u64 = 73;

/// After the last phase this many names and telephones are looked for in vain.
const GONE_MAX: u64 = 1_000;

/// The texts alone are written this often, and the quickest counts.
const TEXTS_ROUNDS: usize = 3;

/// A part of the job with a time of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// All rows are entered.
    Create,
    /// All rows are found in the order of their creation.
    Sequence,
    /// All rows are found in random order.
    Random,
    /// All rows are deleted in the order of their creation.
    Delete,
}

impl Phase {
    /// In the order in which they are done.
    pub const ALL: [Self; 4] = [Self::Create, Self::Sequence, Self::Random, Self::Delete];

    /// Name in messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Sequence => "sequence",
            Self::Random => "random",
            Self::Delete => "delete",
        }
    }
}

/// What a phase took, and a sum over what it read.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Seconds under the clock.
    pub seconds: f64,
    /// Sum over the heads of the addresses found; nothing where nothing is looked for.
    pub checksum: u64,
}

/// Shape of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Rows of the full book.
    pub rows: u64,
    /// 1: by name; 2: by telephone, too.
    pub indexes: u8,
    /// Rows a call; 1 means single calls.
    pub batch: usize,
}

impl Job {
    /// Does `phase` on `book` and judges it.
    ///
    /// # Errors
    /// A wrong answer, or the store's own.
    pub fn run(&self, phase: Phase, book: &mut impl Book) -> Result<Done, Failure> {
        let start = Instant::now();
        book.begin(phase)?;
        let tally = if self.batch == 1 {
            self.single(phase, book)
        } else {
            self.batches(phase, book)
        }?;
        book.end(phase)?;
        let seconds = start.elapsed().as_secs_f64();
        self.judge(phase, tally, book)?;
        Ok(Done {
            seconds,
            checksum: tally.checksum,
        })
    }

    /// Least seconds that writing and comparing the texts of all phases take by themselves.
    pub fn texts_seconds(&self) -> f64 {
        (0..TEXTS_ROUNDS)
            .map(|_| self.write_texts())
            .fold(f64::INFINITY, f64::min)
    }

    fn write_texts(&self) -> f64 {
        let start = Instant::now();
        let (mut texts, mut tally) = (Texts::default(), Tally::default());
        for phase in Phase::ALL {
            for step in 0..self.rows {
                match phase {
                    Phase::Delete => texts.write_name(step),
                    _ => texts.write(step),
                }
                let record = std::hint::black_box(texts.record());
                match phase {
                    Phase::Sequence | Phase::Random => tally.compare(record, texts.record()),
                    Phase::Create | Phase::Delete => {}
                }
            }
        }
        std::hint::black_box(tally);
        start.elapsed().as_secs_f64()
    }

    fn single(&self, phase: Phase, book: &mut impl Book) -> Result<Tally, Failure> {
        let (mut texts, mut tally) = (Texts::default(), Tally::default());
        let stride = self.stride(phase);
        let by_telephone = self.is_by_telephone(phase);
        match phase {
            Phase::Create => {
                for ordinal in 0..self.rows {
                    texts.write(ordinal);
                    tally.right += u64::from(book.create(texts.record())?);
                }
            }
            Phase::Sequence | Phase::Random => {
                for step in 0..self.rows {
                    texts.write(step * stride % self.rows);
                    let stored = texts.record();
                    let compare = |found: Record<'_>| tally.compare(stored, found);
                    if by_telephone {
                        book.by_telephone(stored.telephone, compare)?;
                    } else {
                        book.by_name(stored.name, compare)?;
                    }
                }
            }
            Phase::Delete => {
                for ordinal in 0..self.rows {
                    texts.write_name(ordinal);
                    tally.right += u64::from(book.delete(&texts.name)?);
                }
            }
        }
        Ok(tally)
    }

    fn batches(&self, phase: Phase, book: &mut impl Book) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let mut texts = vec![Texts::default(); self.batch];
        let stride = self.stride(phase);
        let by_telephone = self.is_by_telephone(phase);
        for start in (0..self.rows).step_by(self.batch) {
            let count = self.batch.min((self.rows - start) as usize);
            let texts = &mut texts[..count];
            for (step, texts) in (start..).zip(texts.iter_mut()) {
                match phase {
                    Phase::Delete => texts.write_name(step),
                    _ => texts.write(step * stride % self.rows),
                }
            }
            let texts = &*texts;
            let compare =
                |index: usize, found: Record<'_>| tally.compare(texts[index].record(), found);
            match phase {
                Phase::Create => {
                    let records: Vec<Record<'_>> = texts.iter().map(Texts::record).collect();
                    tally.right += book.create_batch(&records)? as u64;
                }
                Phase::Random if by_telephone => {
                    let keys: Vec<&str> = texts.iter().map(|texts| &*texts.telephone).collect();
                    book.by_telephone_batch(&keys, compare)?;
                }
                Phase::Sequence | Phase::Random => {
                    let keys: Vec<&str> = texts.iter().map(|texts| &*texts.name).collect();
                    book.by_name_batch(&keys, compare)?;
                }
                Phase::Delete => {
                    let keys: Vec<&str> = texts.iter().map(|texts| &*texts.name).collect();
                    tally.right += book.delete_batch(&keys)? as u64;
                }
            }
        }
        Ok(tally)
    }

    /// Every row answered for, nothing read twice, and as many entries as there must be.
    fn judge(&self, phase: Phase, tally: Tally, book: &mut impl Book) -> Result<(), Failure> {
        if tally.right != self.rows {
            let wrong = self.rows.abs_diff(tally.right);
            return Err(Failure::new(format!("{wrong} wrong answers")));
        }
        if matches!(phase, Phase::Sequence | Phase::Random) && tally.checksum != self.checksum() {
            return Err(Failure::new(
                "some rows were found twice and others not at all",
            ));
        }
        let entries = if phase == Phase::Delete { 0 } else { self.rows };
        let counts = book.counts()?;
        if counts.iter().any(|count| *count != entries) {
            return Err(Failure::new(format!(
                "indexes of {counts:?} entries instead of {entries}"
            )));
        }
        if phase == Phase::Delete {
            self.look_in_vain(book)?;
        }
        Ok(())
    }

    fn look_in_vain(&self, book: &mut impl Book) -> Result<(), Failure> {
        let (mut texts, mut ghosts) = (Texts::default(), 0);
        for ordinal in 0..self.rows.min(GONE_MAX) {
            texts.write(ordinal);
            book.by_name(&texts.name, |_| ghosts += 1)?;
            if self.indexes == 2 {
                book.by_telephone(&texts.telephone, |_| ghosts += 1)?;
            }
        }
        match ghosts {
            0 => Ok(()),
            _ => Err(Failure::new(format!("{ghosts} deleted rows were found"))),
        }
    }

    /// Sum of [`mark`]s of all rows.
    fn checksum(&self) -> u64 {
        let (mut texts, mut sum) = (Texts::default(), 0_u64);
        for ordinal in 0..self.rows {
            texts.write(ordinal);
            sum = sum.wrapping_add(mark(texts.record()));
        }
        sum
    }

    /// Rows between one that is asked for and the next.
    fn stride(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Random => stride_of(self.rows),
            Phase::Create | Phase::Sequence | Phase::Delete => 1,
        }
    }

    fn is_by_telephone(&self, phase: Phase) -> bool {
        phase == Phase::Random && self.indexes == 2
    }
}

/// Smallest number from 73 that has no factor in common with `rows`.
fn stride_of(rows: u64) -> u64 {
    let is_coprime = |stride: &u64| greatest_common_divisor(*stride, rows) == 1;
    (STRIDE_MIN..).find(is_coprime).unwrap_or(1)
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// What a record adds to the checksum: the head of its address, where its number stands.
fn mark(record: Record<'_>) -> u64 {
    let head = record.address.as_bytes().first_chunk();
    head.map_or(0, |head| u64::from_le_bytes(*head))
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    right: u64,
    checksum: u64,
}

impl Tally {
    #[inline(always)]
    fn compare(&mut self, stored: Record<'_>, found: Record<'_>) {
        self.right += u64::from(stored == found);
        self.checksum = self.checksum.wrapping_add(mark(found));
    }
}

/// The texts of one row, written anew for each.
#[derive(Debug, Clone, Default)]
struct Texts {
    name: String,
    address: String,
    telephone: String,
}

impl Texts {
    #[inline(always)]
    fn write(&mut self, ordinal: u64) {
        let number = Number::of(ordinal);
        put(&mut self.name, &["Person #", number.text()]);
        put(&mut self.address, &[number.text(), " nowhere avenue"]);
        put(&mut self.telephone, &["07886 ", number.text()]);
    }

    #[inline(always)]
    fn write_name(&mut self, ordinal: u64) {
        put(&mut self.name, &["Person #", Number::of(ordinal).text()]);
    }

    #[inline(always)]
    fn record(&self) -> Record<'_> {
        Record {
            name: &self.name,
            address: &self.address,
            telephone: &self.telephone,
        }
    }
}

#[inline(always)]
fn put(text: &mut String, words: &[&str]) {
    text.clear();
    words.iter().for_each(|word| text.push_str(word));
}

/// A number in decimal. The standard library's formatter takes several times as long, which every
/// contestant would have added to its time.
struct Number {
    digits: [u8; 20],
    start: usize,
}

impl Number {
    #[inline(always)]
    fn of(mut value: u64) -> Self {
        let (mut digits, mut start) = ([b'0'; 20], 19);
        digits[start] += (value % 10) as u8;
        while value >= 10 {
            value /= 10;
            start -= 1;
            digits[start] += (value % 10) as u8;
        }
        Self { digits, start }
    }

    #[inline(always)]
    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persist::maps::HashPair;

    #[test]
    fn texts_have_the_forms_of_the_original() {
        for ordinal in [0, 9, 10, 73, 9_999_999, u64::MAX] {
            let mut texts = Texts::default();
            texts.write(ordinal);
            assert_eq!(texts.name, format!("Person #{ordinal}"));
            assert_eq!(texts.address, format!("{ordinal} nowhere avenue"));
            assert_eq!(texts.telephone, format!("07886 {ordinal}"));
            texts.write_name(ordinal / 7);
            assert_eq!(texts.name, format!("Person #{}", ordinal / 7));
        }
    }

    #[test]
    fn the_random_order_visits_every_row_once() {
        for rows in [1, 2, 100, 73, 146, 73 * 74 * 75, 1_000] {
            let stride = stride_of(rows);
            let mut visited = vec![false; rows as usize];
            for step in 0..rows {
                let place = (step * stride % rows) as usize;
                assert!(!std::mem::replace(&mut visited[place], true));
            }
        }
        assert_eq!(stride_of(10_000_000), 73);
        assert_eq!(stride_of(73), 74);
    }

    #[test]
    fn batches_do_what_single_calls_do() {
        for (rows, batch) in [(100, 1), (100, 7), (3, 64), (64, 64)] {
            let job = Job {
                rows,
                indexes: 2,
                batch,
            };
            let mut book = HashPair::new(2);
            for phase in Phase::ALL {
                let done = job.run(phase, &mut book).unwrap();
                let found = matches!(phase, Phase::Sequence | Phase::Random);
                let checksum = if found { job.checksum() } else { 0 };
                assert_eq!(done.checksum, checksum);
            }
        }
    }

    /// A book that does one thing wrong.
    struct Wrong {
        book: HashPair,
        fault: Fault,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fault {
        None,
        OtherAddress,
        NotFound,
        OtherFoundTwice,
        NotDeleted,
        StaleTelephone,
        Ghost,
    }

    impl Book for Wrong {
        fn create(&mut self, record: Record<'_>) -> Result<bool, Failure> {
            self.book.create(record)
        }

        fn by_name(&mut self, name: &str, found: impl FnOnce(Record<'_>)) -> Result<(), Failure> {
            if self.fault == Fault::NotFound && name == "Person #17" {
                return Ok(());
            }
            if self.fault == Fault::Ghost && self.book.counts()?[0] == 0 {
                let (address, telephone) = ("gone", "gone");
                found(Record {
                    name,
                    address,
                    telephone,
                });
                return Ok(());
            }
            let address = (self.fault == Fault::OtherAddress).then_some("nowhere");
            self.book.by_name(name, |record| {
                let address = address.unwrap_or(record.address);
                found(Record { address, ..record });
            })
        }

        fn by_telephone(
            &mut self,
            telephone: &str,
            found: impl FnOnce(Record<'_>),
        ) -> Result<(), Failure> {
            self.book.by_telephone(telephone, found)
        }

        fn by_name_batch(
            &mut self,
            names: &[&str],
            mut found: impl FnMut(usize, Record<'_>),
        ) -> Result<(), Failure> {
            for index in 0..names.len() {
                let index = match self.fault {
                    Fault::OtherFoundTwice => index / 2 * 2,
                    _ => index,
                };
                self.by_name(names[index], |record| found(index, record))?;
            }
            Ok(())
        }

        fn delete(&mut self, name: &str) -> Result<bool, Failure> {
            match self.fault {
                Fault::NotDeleted => Ok(true),
                _ => self.book.delete(name),
            }
        }

        fn counts(&mut self) -> Result<Vec<u64>, Failure> {
            let mut counts = self.book.counts()?;
            counts[1] += u64::from(self.fault == Fault::StaleTelephone && counts[1] == 0);
            Ok(counts)
        }
    }

    #[test]
    fn a_book_that_does_one_thing_wrong_is_found_out() {
        for (fault, caught) in [
            (Fault::None, None),
            (Fault::OtherAddress, Some(Phase::Sequence)),
            (Fault::NotFound, Some(Phase::Sequence)),
            (Fault::OtherFoundTwice, Some(Phase::Sequence)),
            (Fault::NotDeleted, Some(Phase::Delete)),
            (Fault::StaleTelephone, Some(Phase::Delete)),
            (Fault::Ghost, Some(Phase::Delete)),
        ] {
            for batch in [1, 10] {
                if fault == Fault::OtherFoundTwice && batch == 1 {
                    continue;
                }
                let job = Job {
                    rows: 100,
                    indexes: 2,
                    batch,
                };
                let book = HashPair::new(2);
                let mut book = Wrong { book, fault };
                let mut phases = Phase::ALL.into_iter();
                let found = phases.find(|phase| job.run(*phase, &mut book).is_err());
                assert_eq!(found, caught, "{fault:?} in batches of {batch}");
            }
        }
    }
}
