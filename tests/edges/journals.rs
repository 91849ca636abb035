//! Journals of databases that nobody has open: back in time, what they hold, and who may use them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use ancile::{
    Durability, Engine, EngineBuilder, FieldKind, JournalPart, Journals, OpenError, RecordSchema,
    Schema, SurrogateId, TableSchema, Value, Verbs,
};

use super::database::{Place, settings};
use super::support::{Random, watchdog};

const DIRECTORY: &str = "ANCILE_ROLLBACK_DIRECTORY";
const EPOCH: &str = "ANCILE_ROLLBACK_EPOCH";

pub(super) fn journaled() -> EngineBuilder {
    settings()
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(1 << 18)
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// All that an engine holds: each table's rows, with their places, or records, in some order.
pub(super) type State = BTreeMap<String, Vec<String>>;

pub(super) fn state(engine: &Engine) -> State {
    let mut session = engine.session().unwrap();
    let mut state = State::new();
    for table in engine.tables() {
        let mut rows = Vec::new();
        match table.schema {
            TableSchema::Rows(_) => {
                let table = engine.open_table::<Vec<u64>>(&table.name).unwrap();
                let scanned = session.scan(&table, |_, id, row| {
                    rows.push(format!("{id:?} {row:?}"));
                    ControlFlow::Continue(())
                });
                scanned.unwrap();
            }
            _ => {
                let table = engine.open_records_with(&table.name).unwrap();
                let scanned = session.records(&table).scan(|record| {
                    rows.push(format!("{record:?}"));
                    ControlFlow::Continue(())
                });
                scanned.unwrap();
            }
        }
        rows.sort_unstable();
        state.insert(table.name, rows);
    }
    state
}

/// Fails with the first rows that differ, and not with all that there are.
#[track_caller]
pub(super) fn assert_same(found: &State, expected: &State, of: &str) {
    let names = |state: &State| state.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{of}");
    for (table, rows) in expected {
        let other = &found[table];
        let extra = other.iter().find(|row| rows.binary_search(row).is_err());
        let missing = rows.iter().find(|row| other.binary_search(row).is_err());
        assert!(
            found[table] == *rows,
            "{of}, {table}: {} rows instead of {}; first too many {extra:?}, first missing {missing:?}",
            other.len(),
            rows.len()
        );
    }
}

fn opened_state(path: &Path) -> State {
    let engine = journaled().must_exist(true).open(path).unwrap();
    let state = state(&engine);
    engine.close().unwrap();
    state
}

fn schema() -> RecordSchema {
    RecordSchema::new()
        .field("name", FieldKind::Text)
        .field("text", FieldKind::Text)
        .field("group", FieldKind::U64)
        .key(&["name"])
        .hash_index("group", &["group"])
        .unique_index("text", &["text"])
}

fn record(number: u64, random: &mut Random) -> Vec<Value> {
    let length = random.below(600) as usize;
    vec![
        Value::Text(format!("record {number}")),
        Value::Text(format!("{:x} {}", random.next(), "text ".repeat(length))),
        Value::U64(random.below(9)),
    ]
}

/// Some work: a table more, sometimes one less, rows and records that come, change and go.
fn work(engine: &Engine, step: u64, random: &mut Random) {
    let mut session = engine.session().unwrap();
    let name = format!("table {step}");
    let keyed = Schema::cells(3).keyed();
    let table = engine.create_table::<[u64; 3]>(&name, keyed).unwrap();
    let keys: Vec<SurrogateId> = (0..2_000).map(SurrogateId).collect();
    let rows: Vec<[u64; 3]> = keys.iter().map(|key| [key.0, step, !key.0]).collect();
    session.insert_keyed_batch(&table, &keys, &rows).unwrap();
    if step % 3 == 2 {
        engine.drop_table(&format!("table {}", step - 1)).unwrap();
    }
    if step == 0 {
        engine
            .create_table::<[u64; 2]>("plain", Schema::cells(2))
            .unwrap();
        engine.create_records_with("records", schema()).unwrap();
    }
    let plain = engine.open_table::<[u64; 2]>("plain").unwrap();
    let mut ids = Vec::new();
    let rows: Vec<[u64; 2]> = (0..800).map(|row| [row, step]).collect();
    session.insert_batch(&plain, &rows, &mut ids).unwrap();
    ids.retain(|_| random.below(3) == 0);
    session.delete_batch(&plain, &ids).unwrap();
    let records = engine.open_records_with("records").unwrap();
    let mut records = session.records(&records);
    for _ in 0..120 {
        let number = random.below(200);
        match random.below(4) {
            0 => drop(
                records
                    .delete(Value::Text(format!("record {number}")))
                    .unwrap(),
            ),
            _ => drop(records.upsert(&record(number, random)).unwrap()),
        }
    }
}

/// A database with a past, and what it held at the end of some of its epochs.
fn with_past(path: &Path, steps: u64) -> Vec<(u64, State)> {
    let random = &mut Random::seeded();
    let mut past = Vec::new();
    let mut engine = journaled().open(path).unwrap();
    for step in 0..steps {
        work(&engine, step, random);
        engine.flush().unwrap();
        past.push((engine.durable_epoch().unwrap(), state(&engine)));
        if step % 4 == 3 {
            engine.close().unwrap();
            engine = journaled().open(path).unwrap();
        }
    }
    engine.close().unwrap();
    past
}

#[test]
fn rollback_to_each_of_ten_epochs_gives_exactly_what_there_was() {
    let _watchdog = watchdog(300);
    let place = Place::new("past");
    let past = with_past(place.path(), 10);
    let reach = Journals::read_only(place.path()).unwrap().reach().unwrap();
    assert!(reach.oldest <= past[0].0, "{} is out of reach", past[0].0);
    // Each from the same future, and then one after the other.
    for (epoch, state) in &past {
        let copied = Place::new("past-copy");
        copy(place.path(), copied.path());
        let lost = copied.path().with_extension("lost");
        let journals = Journals::open(copied.path()).unwrap();
        let back = journals.roll_back(*epoch, Some(&lost)).unwrap();
        assert_eq!((back.to, back.from), (*epoch, reach.newest));
        let lines = fs::read_to_string(&lost).unwrap().lines().count() as u64;
        fs::remove_file(lost).unwrap();
        assert_eq!(lines, back.undone);
        assert_same(
            &opened_state(copied.path()),
            state,
            &format!("epoch {epoch}"),
        );
        let report = ancile::check(copied.path()).unwrap();
        assert!(report.is_whole(), "{report:?}");
    }
    for (epoch, state) in past.iter().rev() {
        let journals = Journals::open(place.path()).unwrap();
        let back = journals.roll_back(*epoch, None).unwrap();
        assert_eq!(back.to, *epoch);
        let of = format!("epoch {epoch}, one after the other");
        assert_same(&opened_state(place.path()), state, &of);
    }
    // What comes after is another future.
    let engine = journaled().open(place.path()).unwrap();
    work(&engine, 100, &mut Random::of(7));
    let later = state(&engine);
    engine.close().unwrap();
    assert_same(&opened_state(place.path()), &later, "later");
    assert!(later != past[0].1);
}

#[test]
fn rollback_goes_as_far_back_as_before_there_was_anything() {
    let _watchdog = watchdog(120);
    let place = Place::new("beginning");
    let past = with_past(place.path(), 2);
    let reach = Journals::read_only(place.path()).unwrap().reach().unwrap();
    assert_eq!(reach.oldest, 0);
    for epoch in [past[0].0, 0] {
        let journals = Journals::open(place.path()).unwrap();
        journals.roll_back(epoch, None).unwrap();
    }
    assert!(opened_state(place.path()).is_empty());
    let engine = journaled().open(place.path()).unwrap();
    work(&engine, 0, &mut Random::of(1));
    let there = state(&engine);
    engine.close().unwrap();
    assert_same(&opened_state(place.path()), &there, "the other future");
    assert!(ancile::check(place.path()).unwrap().is_whole());
}

#[test]
fn rollback_of_an_image_that_is_read_as_it_is_needed_gives_what_there_was() {
    let _watchdog = watchdog(300);
    let place = Place::new("large-past");
    let open = || {
        journaled()
            .checkpoint_bytes(8 << 20)
            .arena_bytes(256 << 20)
            .open(place.path())
    };
    let engine = open().unwrap();
    let fill = |name: &str, value: u64| {
        let table = engine.create_table::<[u64; 60]>(name, Schema::cells(60).keyed());
        let table = table.unwrap();
        let mut session = engine.session().unwrap();
        for first in (0..140_000).step_by(1_000) {
            let keys: Vec<SurrogateId> = (first..first + 1_000).map(SurrogateId).collect();
            let rows = vec![[value; 60]; 1_000];
            session.insert_keyed_batch(&table, &keys, &rows).unwrap();
        }
    };
    fill("first", 1);
    engine.flush().unwrap();
    let epoch = engine.durable_epoch().unwrap();
    engine.drop_table("first").unwrap();
    fill("second", 2);
    engine.close().unwrap();
    let image = fs::metadata(place.path().join("shard-0000/image")).unwrap();
    assert!(
        image.len() > 32 << 20,
        "{}: it is read at once",
        image.len()
    );
    let journals = Journals::open(place.path()).unwrap();
    journals.roll_back(epoch, None).unwrap();
    let engine = open().unwrap();
    let table = engine.open_table::<[u64; 60]>("first").unwrap();
    assert!(engine.open_table::<[u64; 60]>("second").is_err());
    let mut session = engine.session().unwrap();
    assert_eq!(session.count(&table), Ok(140_000));
    let mut rows = 0;
    let scanned = session.scan(&table, |_, _, row| {
        assert_eq!(row, [1; 60]);
        rows += 1;
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert_eq!(rows, 140_000);
    let again = engine.create_table::<[u64; 60]>("again", Schema::cells(60).keyed());
    let again = again.unwrap();
    for key in 0..1_000 {
        let found = session.select(&again, SurrogateId(key)).unwrap();
        assert_eq!(found, None);
        session
            .insert_keyed(&again, SurrogateId(key), &[3; 60])
            .unwrap();
    }
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(place.path()).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn rollback_that_is_interrupted_leaves_the_database_where_it_was_or_where_it_goes() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let epoch = std::env::var(EPOCH).unwrap().parse().unwrap();
        let journals = Journals::open(Path::new(&directory)).unwrap();
        let lost = Path::new(&directory).with_extension("lost");
        journals.roll_back(epoch, Some(&lost)).unwrap();
        return;
    }
    let _watchdog = watchdog(300);
    let place = Place::new("interrupted");
    let past = with_past(place.path(), 6);
    let newest = opened_state(place.path());
    let random = &mut Random::seeded();
    let (mut back, mut stayed) = (0, 0);
    for round in 0..24 {
        let copied = Place::new("interrupted-copy");
        copy(place.path(), copied.path());
        let (epoch, state) = &past[random.below(5) as usize];
        let name = std::thread::current().name().unwrap().to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--test-threads=1"])
            .env(DIRECTORY, copied.path())
            .env(EPOCH, epoch.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Sooner or later, by what a rollback takes here.
        let lost = copied.path().with_extension("lost");
        while !lost.exists() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(random.below(4_000) * round));
        let _ = child.kill();
        child.wait().unwrap();
        let _ = fs::remove_file(lost);
        let recovered = Journals::open(copied.path()).unwrap().recover().unwrap();
        let found = opened_state(copied.path());
        match recovered.epoch == *epoch || &found == state {
            true => {
                back += 1;
                assert_same(&found, state, &format!("round {round}, epoch {epoch}"));
            }
            false => {
                stayed += 1;
                assert_same(&found, &newest, &format!("round {round}, epoch {epoch}"));
            }
        }
        assert!(ancile::check(copied.path()).unwrap().is_whole());
    }
    println!("{back} went back, {stayed} stayed");
}

#[test]
fn rollback_out_of_reach_or_over_a_lost_file_changes_nothing() {
    let _watchdog = watchdog(120);
    let place = Place::new("refused");
    let past = with_past(place.path(), 2);
    let before = opened_state(place.path());
    let reach = Journals::read_only(place.path()).unwrap().reach().unwrap();
    let refused = Journals::open(place.path())
        .unwrap()
        .roll_back(reach.newest + 1, None)
        .unwrap_err();
    assert!(refused.to_string().contains("cannot be gone back to"));
    let lost = place.path().with_extension("lost");
    fs::write(&lost, "mine").unwrap();
    let journals = Journals::open(place.path()).unwrap();
    let refused = journals.roll_back(past[0].0, Some(&lost));
    assert!(matches!(refused, Err(OpenError::Directory { .. })));
    assert_eq!(fs::read_to_string(&lost).unwrap(), "mine");
    fs::remove_file(&lost).unwrap();
    let journals = Journals::read_only(place.path()).unwrap();
    let refused = journals.roll_back(past[0].0, Some(&lost)).unwrap_err();
    assert!(refused.to_string().contains("reading only"));
    assert!(!lost.exists());
    assert_same(&opened_state(place.path()), &before, "before");
}

#[test]
fn journals_are_those_of_one_user_at_a_time_and_of_databases_that_have_them() {
    let place = Place::new("users");
    let engine = journaled().open(place.path()).unwrap();
    let refused = Journals::open(place.path()).map(drop);
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    engine.close().unwrap();
    let journals = Journals::open(place.path()).unwrap();
    let refused = journaled().open(place.path()).map(drop);
    assert!(matches!(refused, Err(OpenError::InUse { .. })));
    drop(journals);
    let readers = [(); 2].map(|()| Journals::read_only(place.path()).unwrap());
    assert_eq!(readers[0].reach().unwrap(), readers[1].reach().unwrap());
    let mapped = Place::new("mapped-users");
    settings().open(mapped.path()).unwrap().close().unwrap();
    let refused = Journals::open(mapped.path()).map(drop);
    assert!(matches!(refused, Err(OpenError::NoJournals { .. })));
    let nowhere = Journals::open(mapped.path().join("nowhere")).map(drop);
    assert!(nowhere.is_err());
}

#[test]
fn records_of_journals_tell_the_table_and_the_row_that_they_change() {
    let _watchdog = watchdog(120);
    let place = Place::new("told");
    let engine = journaled().open(place.path()).unwrap();
    let keyed = engine
        .create_table::<[u64; 2]>("keyed", Schema::cells(2).keyed())
        .unwrap();
    let records = engine.create_records_with("records", schema()).unwrap();
    engine.flush().unwrap();
    let first = engine.durable_epoch().unwrap() + 1;
    let mut session = engine.session().unwrap();
    for key in 0..50 {
        let row = [key, 0x1122_3344_5566_7788];
        session
            .insert_keyed(&keyed, SurrogateId(key), &row)
            .unwrap();
    }
    let rows_end = engine.durable_epoch().unwrap();
    let name = Value::Text("x".to_owned());
    let text = Value::Text("a text that does not fit its row".to_owned());
    let record = vec![name, text, Value::U64(3)];
    session.records(&records).insert(&record).unwrap();
    drop(session);
    engine.close().unwrap();
    let journals = Journals::read_only(place.path()).unwrap();
    let mut rows = BTreeMap::<(usize, u64), u32>::new();
    let count = journals.extract(first..=rows_end, |record| {
        assert!((first..=rows_end).contains(&record.epoch));
        if record.part == JournalPart::Rows {
            assert_eq!(record.table, Some("keyed"));
            *rows.entry((record.shard, record.row.unwrap())).or_default() += 1;
            let line: serde_json::Value = serde_json::from_str(&record.to_string()).unwrap();
            assert_eq!(line["table"], "keyed");
            assert!(line["bytes"].as_str().unwrap().contains("8877665544332211"));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(rows.len(), 50, "each row once, of {count:?} records");
    let mut parts = BTreeMap::<String, u64>::new();
    let all = journals.extract(rows_end + 1.., |record| {
        let of = format!("{:?} {:?}", record.table, record.part);
        *parts.entry(of).or_default() += 1;
        ControlFlow::Continue(())
    });
    assert!(all.unwrap() >= 5, "{parts:?}");
    for part in ["Rows", "Index", "Texts"] {
        let part = format!("Some(\"records\") {part}");
        assert!(parts.contains_key(&part), "{part} of {parts:?}");
    }
    let first_one = journals.extract(.., |_| ControlFlow::Break(()));
    assert_eq!(first_one.unwrap(), 1);
}

#[test]
fn epochs_are_found_by_the_time_at_which_they_ended() {
    let _watchdog = watchdog(120);
    let place = Place::new("times");
    let engine = journaled().open(place.path()).unwrap();
    let table = engine
        .create_table::<[u64; 1]>("table", Schema::cells(1))
        .unwrap();
    let mut session = engine.session().unwrap();
    let mut ends = Vec::new();
    for round in 0..3 {
        session.insert(&table, &[round]).unwrap();
        ends.push((engine.durable_epoch().unwrap(), SystemTime::now()));
        std::thread::sleep(Duration::from_millis(3));
    }
    drop(session);
    engine.close().unwrap();
    let journals = Journals::read_only(place.path()).unwrap();
    for (epoch, time) in ends {
        assert_eq!(journals.epoch_at(time).unwrap(), Some(epoch));
    }
    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    assert_eq!(journals.epoch_at(long_ago).unwrap(), None);
}
