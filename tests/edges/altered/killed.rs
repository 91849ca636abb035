//! A process is killed while it gives a table other fields and indexes: the table is as before or as
//! wanted, or between two steps of the way, and whole.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ancile::{Durability, Engine, EngineBuilder, IndexKind, Value, Verbs};

use crate::edges::database::Place;
use crate::edges::support::{Random, watchdog};

const DIRECTORY: &str = "ANCILE_ALTERED_DIRECTORY";
const JOURNAL: &str = "ANCILE_ALTERED_JOURNAL";
const PEOPLE: u64 = 2_000;
const ROUNDS: u64 = 12;

ancile::record! {
    struct Before {
        name: String,
        number: u64,
        address: String,
    }
    key(name);
}

ancile::record! {
    struct After {
        name: String,
        number: u64,
        address: String,
        place: String,
    }
    key(name);
    hash_index address(address);
    unique_index number(number);
    ordered_index placed(place, number);
}

ancile::record! {
    /// As `After`, with fewer indexes.
    struct Later {
        name: String,
        number: u64,
        address: String,
        place: String,
    }
    key(name);
    ordered_index placed(place, number);
}

fn settings(has_journals: bool) -> EngineBuilder {
    let settings = Engine::builder().shards(2).arena_bytes(64 << 20).pin(false);
    if !has_journals {
        return settings;
    }
    settings
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(1 << 20)
}

fn person(number: u64) -> Before {
    Before {
        name: format!("a name that is somewhat long {number}"),
        number,
        address: format!("address {}", number % 97),
    }
}

fn after(number: u64) -> After {
    let Before {
        name,
        number,
        address,
    } = person(number);
    After {
        name,
        number,
        address,
        place: "a place that all had before".to_owned(),
    }
}

/// Gives the table fields and indexes until it is killed.
fn be_killed(path: &Path, has_journals: bool) -> ! {
    let engine = settings(has_journals).open(path).unwrap();
    println!("begun");
    engine.alter_records("people", &after(0), |_| {}).unwrap();
    loop {
        let After {
            name,
            number,
            address,
            place,
        } = after(0);
        let later = Later {
            name,
            number,
            address,
            place,
        };
        engine.alter_records("people", &later, |_| {}).unwrap();
        engine.alter_records("people", &after(0), |_| {}).unwrap();
    }
}

/// Lets a process work for a while.
fn kill(path: &Path, has_journals: bool, micros: u64) {
    let name = std::thread::current().name().unwrap().to_owned();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if has_journals {
        command.env(JOURNAL, "1");
    }
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("begun")));
    std::thread::sleep(Duration::from_micros(micros));
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Whether all records are there, and each is found by every index that there is; gives the fields and
/// indexes.
fn check(path: &Path, has_journals: bool) -> (usize, Vec<String>) {
    let report = ancile::check(path).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let engine = settings(has_journals).open(path).unwrap();
    let records = engine.open_records_with("people").unwrap();
    let schema = records.schema().clone();
    let mut session = engine.session().unwrap();
    let mut people = session.records(&records);
    let mut all = Vec::new();
    let scanned = people.scan(|person| {
        all.push(person);
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    all.sort_by_key(|person| match person[1] {
        Value::U64(number) => number,
        ref other => panic!("{other:?}"),
    });
    assert_eq!(all.len() as u64, PEOPLE);
    for (number, person_there) in (0..).zip(&all) {
        let After {
            name,
            number,
            address,
            place,
        } = after(number);
        let whole = [
            Value::Text(name),
            Value::U64(number),
            Value::Text(address),
            Value::Text(place),
        ];
        assert_eq!(person_there[..], whole[..schema.fields().len()]);
    }
    for index in schema.indexes() {
        for person in all.iter().step_by(41) {
            let values: Vec<Value> = index
                .fields
                .iter()
                .map(|&field| person[field].clone())
                .collect();
            let found = people.find(&index.name, &values).unwrap();
            assert!(found.contains(person), "{index:?}");
            let is_one = index.kind == IndexKind::Hash || found.len() == 1;
            assert!(is_one, "{index:?}: {found:?}");
        }
    }
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(path).unwrap();
    assert!(report.is_whole(), "{report:?}");
    // Entries of indexes that are none are gone.
    assert_eq!(report.tables.len(), 1, "{report:?}");
    let names = schema.indexes().iter().map(|index| index.name.clone());
    (schema.fields().len(), names.collect())
}

fn kill_again_and_again(has_journals: bool) {
    let rounds =
        std::env::var("ANCILE_ALTERED_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let _watchdog = watchdog(300 + 5 * rounds);
    let mut random = Random::seeded();
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..rounds {
        let place = Place::new("altered-killed");
        let engine = settings(has_journals).open(place.path()).unwrap();
        let records = engine.create_records::<Before>("people").unwrap();
        let all: Vec<Before> = (0..PEOPLE).map(person).collect();
        let mut session = engine.session().unwrap();
        session.records(&records).insert_batch(&all).unwrap();
        drop(session);
        engine.close().unwrap();
        for _ in 0..2 {
            if kill_once(place.path(), has_journals, &mut random) {
                break;
            }
        }
        found.insert(check(place.path(), has_journals));
    }
    println!("{rounds} rounds, {} states: {found:?}", found.len());
    assert!(found.len() > 1, "{found:?}");
}

/// Whether that is enough.
fn kill_once(path: &Path, has_journals: bool, random: &mut Random) -> bool {
    let longest = if random.below(2) == 0 {
        400_000
    } else {
        40_000
    };
    kill(path, has_journals, random.below(longest));
    random.below(2) == 0
}

#[test]
fn killed_process_leaves_altered_records_whole() {
    if let Some(path) = std::env::var_os(DIRECTORY) {
        be_killed(Path::new(&path), std::env::var_os(JOURNAL).is_some());
    }
    kill_again_and_again(false);
}

#[test]
fn killed_process_with_journals_leaves_altered_records_whole() {
    if let Some(path) = std::env::var_os(DIRECTORY) {
        be_killed(Path::new(&path), std::env::var_os(JOURNAL).is_some());
    }
    kill_again_and_again(true);
}
