//! Damaged files: whatever bytes they have, checking, salvaging and opening them gives an answer.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ancile::{
    Engine, Error, FieldKind, RecordSchema, Records, Salvage, Schema, SurrogateId, Value, Verbs,
};

use super::database::{Place, settings};
use super::support::{Random, is_alone, watchdog};

pub(super) const RECORDS: u64 = 400;
pub(super) const ROWS: u64 = 1_000;

fn text(number: u64) -> Value {
    let length = match number % 11 {
        0 => 0,
        // Few, so that most of the files is what the engine goes by.
        1 if number < 20 => 40_000,
        2 if number < 80 => 2_000,
        other => other as usize * 9,
    };
    Value::Text(
        "abcdefgh"
            .chars()
            .cycle()
            .skip(number as usize % 8)
            .take(length)
            .collect(),
    )
}

pub(super) fn record(number: u64) -> Vec<Value> {
    vec![
        Value::Text(format!("record {number}, whose name is long")),
        text(number),
        Value::U64(number % 17),
        if number.is_multiple_of(3) {
            Value::Nothing
        } else {
            Value::Bytes(vec![number as u8; number as usize % 60])
        },
        Value::Bool(number.is_multiple_of(2)),
    ]
}

fn schema() -> RecordSchema {
    RecordSchema::new()
        .field("name", FieldKind::Text)
        .field("text", FieldKind::Text)
        .field("group", FieldKind::U64)
        .optional("bytes", FieldKind::Bytes)
        .field("is", FieldKind::Bool)
        .key(&["name"])
        .hash_index("group", &["group"])
        .ordered_index("group_name", &["group", "name"])
        .unique_index("once", &["bytes", "name"])
}

/// Tables of each sort, with rows that came and went.
pub(super) fn fill(engine: &Engine) {
    let plain = engine
        .create_table::<[u64; 3]>("plain", Schema::cells(3))
        .unwrap();
    let keyed = engine
        .create_table::<[u64; 2]>("keyed", Schema::cells(2).keyed())
        .unwrap();
    let records = engine.create_records_with("records", schema()).unwrap();
    let mut session = engine.session().unwrap();
    let mut ids = Vec::new();
    let rows: Vec<[u64; 3]> = (0..ROWS).map(|row| [row, row ^ 77, 1]).collect();
    session.insert_batch(&plain, &rows, &mut ids).unwrap();
    let gone: Vec<_> = ids.iter().copied().step_by(3).collect();
    session.delete_batch(&plain, &gone).unwrap();
    for key in 0..ROWS {
        session
            .insert_keyed(&keyed, SurrogateId(key), &[key, 2])
            .unwrap();
    }
    for key in (0..ROWS).step_by(7) {
        session.delete(&keyed, SurrogateId(key)).unwrap();
    }
    let mut records = session.records(&records);
    for number in 0..RECORDS {
        records.insert(&record(number)).unwrap();
    }
    for number in (0..RECORDS).step_by(5) {
        records.delete(record(number)[0].clone()).unwrap();
    }
}

/// A file's bytes that are not all zeros, page by page, and the file to be damaged.
pub(super) struct Victim {
    file: File,
    bytes: Vec<u8>,
    pages: Vec<usize>,
}

impl Victim {
    pub(super) fn new(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let pages = bytes.chunks(4096).enumerate();
        let pages = pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0));
        Self {
            file: OpenOptions::new().write(true).open(path).unwrap(),
            pages: pages.map(|(page, _)| page * 4096).collect(),
            bytes,
        }
    }

    /// Somewhere in the file, where something is.
    fn place(&self, random: &mut Random) -> usize {
        let at = match random.below(8) {
            0 => random.below(1_024),
            // The first words of a page: heads of parts, slabs, chunks.
            1 => self.page(random) + random.below(64),
            _ => self.page(random) + random.below(4096),
        };
        (at as usize).min(self.bytes.len() - 8)
    }

    /// Whether there is anything but zeros.
    pub(super) fn has_content(&self) -> bool {
        !self.pages.is_empty()
    }

    fn page(&self, random: &mut Random) -> u64 {
        self.pages[random.below(self.pages.len() as u64) as usize] as u64
    }

    /// Changes some bytes; what was where.
    pub(super) fn damage(&self, random: &mut Random) -> Vec<(usize, usize)> {
        (0..=random.below(3))
            .map(|_| {
                let at = self.place(random);
                let (at, new) = self.change(at, random);
                let end = (at + new.len()).min(self.bytes.len());
                self.file.write_all_at(&new[..end - at], at as u64).unwrap();
                (at, end)
            })
            .collect()
    }

    fn change(&self, at: usize, random: &mut Random) -> (usize, Vec<u8>) {
        let odd = [
            0,
            1,
            u64::from(u32::MAX),
            u64::MAX,
            1 << 63,
            random.next() % 5_000,
        ];
        match random.below(6) {
            0 => (at, vec![self.bytes[at] ^ 1 << random.below(8)]),
            1 => (at, vec![random.next() as u8]),
            2 => {
                let word = odd[random.below(6) as usize] as u32;
                (at & !3, word.to_le_bytes().to_vec())
            }
            3 => (
                at & !7,
                odd[random.below(6) as usize].to_le_bytes().to_vec(),
            ),
            4 => {
                // A little more, or less.
                let at = at & !3;
                let word = u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap());
                let word = word.wrapping_add(random.below(5) as u32).wrapping_sub(2);
                (at, word.to_le_bytes().to_vec())
            }
            _ => {
                // What is elsewhere.
                let from = self.place(random) & !7;
                let bytes = self.bytes[from..].iter().take(1 << random.below(9));
                (at & !7, bytes.copied().collect())
            }
        }
    }

    pub(super) fn restore(&self, changes: &[(usize, usize)]) {
        for &(at, end) in changes {
            self.file
                .write_all_at(&self.bytes[at..end], at as u64)
                .unwrap();
        }
    }
}

/// Reads all that there is, in every way.
pub(super) fn read_all(engine: &Engine) -> Result<u64, Box<dyn std::error::Error>> {
    let mut session = engine.session()?;
    let mut rows = 0;
    if let Ok(plain) = engine.open_table::<[u64; 3]>("plain") {
        let mut ids = Vec::new();
        session.scan(&plain, |_, id, _| {
            ids.push(id);
            ControlFlow::Continue(())
        })?;
        session.select_each(&plain, &ids, |_, row| rows += u64::from(row.is_some()))?;
    }
    if let Ok(keyed) = engine.open_table::<[u64; 2]>("keyed") {
        let keys: Vec<SurrogateId> = (0..ROWS).map(SurrogateId).collect();
        session.select_each(&keyed, &keys, |_, row| rows += u64::from(row.is_some()))?;
        session.scan_keyed(&keyed, |_, _, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
    }
    if let Ok(records) = engine.open_records_with("records") {
        let mut records = session.records(&records);
        // Each in its own way: an error of one does not keep the others from being tried.
        let scanned = records.scan(|_| {
            rows += 1;
            ControlFlow::Continue(())
        });
        let keys: Vec<Value> = (0..RECORDS)
            .map(|number| record(number)[0].clone())
            .collect();
        let found = keys.iter().map(|key| {
            records
                .get(key)
                .map(|found| rows += u64::from(found.is_some()))
        });
        let found: Vec<Result<(), Error>> = found.collect();
        for group in 0..18 {
            rows += records.find("group", [Value::U64(group)])?.len() as u64;
            rows += records.count_prefix("group_name", [Value::U64(group)])?;
        }
        for number in 0..20 {
            let record = record(number);
            if record[3] != Value::Nothing {
                let values = [record[3].clone(), record[0].clone()];
                rows += records.find("once", values)?.len() as u64;
            }
        }
        let ordered = records.range_rev("group_name", [Value::U64(1)].., |_| {
            rows += 1;
            ControlFlow::Continue(())
        });
        scanned.and(ordered)?;
        found.into_iter().collect::<Result<(), Error>>()?;
    }
    Ok(rows)
}

/// Changes this and that.
pub(super) fn write_some(
    engine: &Engine,
    random: &mut Random,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = engine.session()?;
    let plain = engine.open_table::<[u64; 3]>("plain")?;
    let keyed = engine.open_table::<[u64; 2]>("keyed")?;
    let records: Records<Vec<Value>> = engine.open_records_with("records")?;
    for _ in 0..60 {
        let number = random.below(RECORDS);
        // What one operation meets is no reason not to try the next.
        match random.below(8) {
            0 => drop(session.insert(&plain, &[number; 3])),
            1 => drop(session.upsert(&keyed, SurrogateId(number), &[number; 2])),
            2 => drop(session.delete(&keyed, SurrogateId(number))),
            3 | 4 => drop(session.records(&records).upsert(&record(number))),
            5 => drop(session.records(&records).delete(&record(number)[0])),
            6 => {
                let mut changed = record(number);
                changed[1] = text(random.next());
                drop(session.records(&records).replace(&changed));
            }
            _ => {
                let changed = session.transaction(|tx| {
                    tx.update(&keyed, SurrogateId(number), &[1; 2])?;
                    tx.insert(&plain, &[7; 3])?;
                    tx.records(&records).upsert(&record(number + 1)).map(drop)
                });
                drop(changed);
            }
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// How often each thing is done; `ANCILE_TEST_DAMAGES` says another number.
pub(super) fn damages(usual: u64) -> u64 {
    let given = std::env::var("ANCILE_TEST_DAMAGES").ok();
    given.map_or(usual, |number| number.parse().unwrap())
}

/// Panics of any thread of this process.
pub(super) fn count_panics() -> &'static AtomicU64 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(info);
    }));
    &PANICS
}

/// A database as a killed process leaves it: something reserved, something prepared, and not closed.
fn unclosed(place: &Place) -> Place {
    let left = Place::new("unclosed");
    let engine = settings().open(place.path()).unwrap();
    let plain = engine.open_table::<[u64; 3]>("plain").unwrap();
    let mut session = engine.session().unwrap();
    let mut transaction = session
        .begin(ancile::TransactionOptions::default())
        .unwrap();
    transaction.insert(&plain, &[1, 2, 3]).unwrap();
    copy(place.path(), left.path());
    drop(transaction);
    left
}

fn quick() -> ancile::EngineBuilder {
    settings().pin(false)
}

/// What came of damages.
#[derive(Default)]
struct Outcomes {
    noticed: u64,
    read: u64,
    refused: BTreeMap<String, u64>,
}

impl Outcomes {
    fn refuse(&mut self, error: &dyn std::fmt::Display) {
        // Paths and numbers are others each time.
        let error = error.to_string();
        let kind = error.rsplit(": ").next().unwrap_or_default();
        let kind = kind.replace(|letter: char| letter.is_ascii_digit(), "");
        *self.refused.entry(kind).or_insert(0) += 1;
    }

    /// Looks at a damaged database in one way or another.
    fn try_all(&mut self, base: &Path, round: u64, random: &mut Random) {
        let is_whole = ancile::check(base).is_ok_and(|report| report.is_whole());
        self.noticed += u64::from(!is_whole);
        if round.is_multiple_of(4)
            && let Ok(mut salvage) = Salvage::open(base)
        {
            for table in salvage.tables() {
                salvage.rows(&table.name, |_| ()).unwrap();
            }
        }
        if round.is_multiple_of(2) {
            match quick().read_only(true).open(base) {
                Ok(engine) => match read_all(&engine) {
                    Ok(_) => self.read += 1,
                    Err(error) => self.refuse(&error),
                },
                Err(error) => self.refuse(&error),
            }
        }
        if round % 4 == 1 {
            let copied = Place::new("damaged-copy");
            copy(base, copied.path());
            if let Ok(engine) = quick().must_exist(true).open(copied.path()) {
                drop(write_some(&engine, random));
                drop(read_all(&engine));
                drop(engine.compact());
                drop(engine.close());
                drop(ancile::check(copied.path()));
            }
        }
    }
}

#[test]
fn whatever_bytes_a_file_has_it_is_checked_salvaged_and_opened_without_a_panic() {
    if !is_alone() {
        return;
    }
    let _watchdog = watchdog(3_000);
    let random = &mut Random::seeded();
    let panics = count_panics();
    let place = Place::new("damage");
    let engine = settings().open(place.path()).unwrap();
    fill(&engine);
    engine.close().unwrap();
    let left = unclosed(&place);
    let mut outcomes = Outcomes::default();
    let rounds = damages(300);
    for base in [place.path(), left.path()] {
        let report = ancile::check(base).unwrap();
        assert!(report.is_whole(), "{report:?}");
        let names = ["shard-0000.arena", "shard-0001.arena", "MANIFEST"];
        let victims = names.map(|name| Victim::new(&base.join(name)));
        for round in 0..rounds {
            let victim = match round % 40 {
                0 => &victims[2],
                _ => &victims[(round % 2) as usize],
            };
            let random = &mut random.fork(round);
            let changes = victim.damage(random);
            outcomes.try_all(base, round, random);
            let panicked = panics.load(Ordering::Relaxed);
            assert_eq!(panicked, 0, "round {round}: {changes:?}");
            victim.restore(&changes);
        }
        assert!(ancile::check(base).unwrap().is_whole());
    }
    let Outcomes {
        noticed,
        read,
        refused,
    } = outcomes;
    let all = 2 * rounds;
    println!("of {all} damages {noticed} were noticed; {read} were read; refused: {refused:#?}");
    assert!(noticed > rounds / 2, "{noticed}");
    assert!(read > rounds / 20 && !refused.is_empty(), "{read}");
}

/// Lines of a path's file, for what is asserted below.
fn found(path: &Path) -> Vec<String> {
    let report = ancile::check(path).unwrap();
    let findings = report.findings.iter();
    findings
        .map(|finding| format!("{:?} {}: {}", finding.table, finding.place, finding.what))
        .collect()
}

fn arena(place: &Place, shard: usize) -> PathBuf {
    place.path().join(format!("shard-{shard:04}.arena"))
}

#[test]
fn changed_values_are_told_by_the_indexes_that_no_longer_find_them() {
    let place = Place::new("values-changed");
    let engine = settings().shards(1).open(place.path()).unwrap();
    fill(&engine);
    engine.close().unwrap();
    assert!(found(place.path()).is_empty());
    let whole = fs::read(arena(&place, 0)).unwrap();
    let with = |from: &[u8], to: &[u8]| {
        let at = whole.windows(from.len()).position(|window| window == from);
        let at = at.unwrap_or_else(|| panic!("{from:?} is not in the file"));
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        fs::write(arena(&place, 0), bytes).unwrap();
        let found = found(place.path());
        assert!(!found.is_empty());
        found.join("\n")
    };
    // A letter of a name.
    let found = with(b"record 7, whose", b"record 8, whose");
    assert!(found.contains("its key does not find it"), "{found}");
    assert!(found.contains("it has no entry"), "{found}");
    // A letter that makes a text no UTF-8.
    let found = with(b"cdefghabcdefgh", &[0xff]);
    assert!(
        found.contains("\"text\" is no text that it can be"),
        "{found}"
    );
    fs::write(arena(&place, 0), &whole).unwrap();
    let mut salvage = Salvage::open(place.path()).unwrap();
    let count = salvage.rows("records", |_| ()).unwrap();
    assert_eq!((count.rows, count.left_out.len()), (RECORDS * 4 / 5, 0));
}
