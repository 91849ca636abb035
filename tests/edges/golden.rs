//! Databases of every format that this program reads, kept as files: read, checked, written to.
//!
//! `tests/golden/format-MAJOR.MINOR/closed` is a database that was closed, `unclosed` the same one as it
//! was left when the system went down in the midst of a transaction, and `ordered` one that was closed, with
//! ordered indexes; `journal-closed` and `journal-unclosed` are such databases with journals. All but the
//! manifests is compressed. What they
//! hold never changes, so that files of earlier formats stay what they are; a new format gets files of
//! its own, written by the last test here when `ANCILE_TEST_GOLDEN_WRITE` is set.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ancile::{
    Engine, EngineBuilder, FieldKind, Journals, Kind, OpenError, RecordSchema, Records, Salvage,
    Schema, SurrogateId, Table, Timestamp, TransactionOptions, Value, Verbs,
};
use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};

use super::database::{Place, settings};
use super::journals::{copy, journaled};

const ROWS: u64 = 300;
const RECORDS: u64 = 120;

/// Lengths of texts, at both sides of what fits a row, and of what is alone in its memory.
const LENGTHS: [usize; 8] = [0, 1, 15, 16, 17, 300, 4_000, 40_000];

fn plain_row(number: u64) -> [u64; 3] {
    [number, u64::MAX - number, number << 40]
}

fn plain_rows() -> Vec<[u64; 3]> {
    (0..ROWS)
        .filter(|number| number % 3 > 0)
        .map(plain_row)
        .collect()
}

fn keyed_row(key: u64) -> Option<[u64; 2]> {
    match (key % 7, key % 5) {
        (0, _) => None,
        (_, 0) => Some([key, 1]),
        _ => Some([key, 0]),
    }
}

fn name(number: u64) -> Value {
    Value::Text(format!("ß {number} {}", "n".repeat(number as usize % 30)))
}

fn record(number: u64) -> Vec<Value> {
    let length = LENGTHS[number as usize % 8];
    let some = |value| match number % 4 {
        0 => Value::Nothing,
        _ => value,
    };
    vec![
        name(number),
        Value::U64(number % 11),
        some(Value::Text(format!("{number}@example.org"))),
        Value::I64(-(number as i64)),
        Value::F64(number as f64 / 7.0),
        Value::Bool(number % 2 == 1),
        Value::Timestamp(Timestamp {
            micros: i64::MIN + number as i64,
        }),
        Value::Text("abcdefg".chars().cycle().take(length).collect()),
        some(Value::Bytes(vec![number as u8; length % 1_000])),
    ]
}

/// Records that are there; of some a number was changed.
fn records() -> BTreeMap<u64, Vec<Value>> {
    let numbers = (0..RECORDS).filter(|number| number % 5 > 0);
    let records = numbers.map(|number| {
        let mut record = record(number);
        if number % 6 == 0 {
            record[1] = Value::U64(11);
        }
        (number, record)
    });
    records.collect()
}

fn schema() -> RecordSchema {
    RecordSchema::new()
        .field("name", FieldKind::Text)
        .field("group", FieldKind::U64)
        .optional("mail", FieldKind::Text)
        .field("integer", FieldKind::I64)
        .field("float", FieldKind::F64)
        .field("bool", FieldKind::Bool)
        .field("moment", FieldKind::Timestamp)
        .field("text", FieldKind::Text)
        .optional("bytes", FieldKind::Bytes)
        .key(&["name"])
        .hash_index("group", &["group"])
        .unique_index("mail", &["mail"])
}

/// Makes the database in which all of that is.
fn make(path: &Path, settings: &EngineBuilder) {
    let engine = settings.clone().open(path).unwrap();
    let columns = Schema::new()
        .column("number", Kind::U64)
        .column("integer", Kind::I64)
        .column("moment", Kind::Timestamp);
    let plain = engine.create_table::<[u64; 3]>("plain", columns).unwrap();
    let keyed = engine
        .create_table::<[u64; 2]>("keyed", Schema::cells(2).keyed())
        .unwrap();
    let gone = engine.create_records_with("gone", schema()).unwrap();
    let table = engine.create_records_with("records", schema()).unwrap();
    let mut session = engine.session().unwrap();
    for number in 0..ROWS {
        let id = session.insert(&plain, &plain_row(number)).unwrap();
        if number % 3 == 0 {
            session.delete(&plain, id).unwrap();
        }
        let key = SurrogateId(number);
        session.insert_keyed(&keyed, key, &[number, 0]).unwrap();
        match keyed_row(number) {
            None => assert!(session.delete(&keyed, key).unwrap()),
            Some(row) => assert!(session.update(&keyed, key, &row).unwrap()),
        }
    }
    session.records(&gone).insert(&record(1)).unwrap();
    let mut all = session.records(&table);
    for number in 0..RECORDS {
        all.insert(&record(number)).unwrap();
    }
    let wanted = records();
    for number in 0..RECORDS {
        match wanted.get(&number) {
            None => assert!(all.delete(name(number)).unwrap()),
            Some(record) => assert!(all.replace(record).unwrap()),
        }
    }
    drop(session);
    engine.drop_table("gone").unwrap();
    engine.close().unwrap();
}

/// A database as it lies there while a transaction is under way.
fn leave_open(path: &Path, left: &Path) {
    let engine = settings().open(path).unwrap();
    let plain = engine.open_table::<[u64; 3]>("plain").unwrap();
    let mut session = engine.session().unwrap();
    let mut transaction = session.begin(TransactionOptions::default()).unwrap();
    for number in 0..20 {
        transaction.insert(&plain, &[number; 3]).unwrap();
    }
    fs::create_dir_all(left).unwrap();
    for file in ["MANIFEST", "shard-0000.arena", "shard-0001.arena"] {
        let mut bytes = fs::read(path.join(file)).unwrap();
        if file != "MANIFEST" {
            // Another start of the system.
            bytes[72..88].fill(0xab);
        }
        fs::write(left.join(file), bytes).unwrap();
    }
}

/// As [`leave_open`], of a database with journals, whose files are as they are at any moment.
fn leave_journals_open(path: &Path, left: &Path) {
    let engine = journaled().open(path).unwrap();
    let plain = engine.open_table::<[u64; 3]>("plain").unwrap();
    let mut session = engine.session().unwrap();
    let id = session.insert(&plain, &[1; 3]).unwrap();
    assert!(session.delete(&plain, id).unwrap());
    let mut transaction = session.begin(TransactionOptions::default()).unwrap();
    for number in 0..20 {
        transaction.insert(&plain, &[number; 3]).unwrap();
    }
    engine.flush().unwrap();
    copy(path, left);
    fs::remove_file(left.join("LOCK")).unwrap();
}

type Tables = (Table<[u64; 3]>, Table<[u64; 2]>, Records<Vec<Value>>);

fn tables(engine: &Engine) -> Tables {
    (
        engine.open_table("plain").unwrap(),
        engine.open_table("keyed").unwrap(),
        engine.open_records_with("records").unwrap(),
    )
}

/// Reads all that there is in every way, but for what `later` has added.
fn check_all(engine: &Engine, later: &BTreeMap<u64, Vec<Value>>) {
    let names: Vec<String> = engine
        .tables()
        .into_iter()
        .map(|table| table.name)
        .collect();
    assert_eq!(names, ["keyed", "plain", "records"]);
    let (plain, keyed, table) = tables(engine);
    assert_eq!(table.schema(), &schema());
    let mut session = engine.session().unwrap();
    let mut rows = Vec::new();
    session
        .scan(&plain, |session, id, row| {
            assert_eq!(session.select(&plain, id).unwrap(), Some(row));
            rows.push(row);
            ControlFlow::Continue(())
        })
        .unwrap();
    rows.sort_unstable();
    assert_eq!(rows, plain_rows());
    for key in 0..ROWS {
        let found = session.select(&keyed, SurrogateId(key)).unwrap();
        assert_eq!(found, keyed_row(key));
    }
    let there = (0..ROWS).filter_map(keyed_row).count() as u64;
    assert_eq!(session.count(&keyed).unwrap(), there);
    let mut expected = records();
    expected.extend(later.clone());
    let mut all = session.records(&table);
    let mut scanned = 0;
    all.scan(|record| {
        assert!(
            expected.values().any(|other| *other == record),
            "{record:?}"
        );
        scanned += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(scanned, expected.len());
    for number in 0..RECORDS {
        let record = expected.get(&number);
        assert_eq!(all.get(name(number)).unwrap().as_ref(), record);
        if let Some(record) = record.filter(|record| record[2] != Value::Nothing) {
            let found = all.find("mail", [record[2].clone()]).unwrap();
            assert_eq!(found, std::slice::from_ref(record));
        }
    }
    for group in 0..12 {
        let group = Value::U64(group);
        let found = all.find("group", [group.clone()]).unwrap();
        let members = expected.values().filter(|record| record[1] == group);
        assert_eq!(found.len(), members.count(), "{group:?}");
    }
}

/// Changes something of every sort; what there is more, and is to be taken away again.
fn change(engine: &Engine) -> BTreeMap<u64, Vec<Value>> {
    let (plain, keyed, table) = tables(engine);
    let mut session = engine.session().unwrap();
    let new: BTreeMap<u64, _> = (0..RECORDS)
        .filter(|number| number % 5 == 0)
        .map(|number| (number, record(number)))
        .collect();
    session
        .transaction(|tx| {
            tx.delete(&keyed, SurrogateId(1))?;
            tx.records(&table).insert(&new[&0])
        })
        .unwrap();
    session
        .insert_keyed(&keyed, SurrogateId(1), &keyed_row(1).unwrap())
        .unwrap();
    for record in new.values().skip(1) {
        session.records(&table).insert(record).unwrap();
    }
    let mut taken = record(1_000);
    taken[2] = record(1)[2].clone();
    let duplicate = session.records(&table).insert(&taken);
    assert!(duplicate.is_err(), "two have the same unique value");
    let id = session.insert(&plain, &[0; 3]).unwrap();
    assert!(session.delete(&plain, id).unwrap());
    engine.compact().unwrap();
    new
}

/// Directories of the formats that are kept.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn this_format() -> PathBuf {
    let (major, minor) = Engine::FORMAT;
    golden().join(format!("format-{major}.{minor}"))
}

fn unpack(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            unpack(&path, &to.join(path.file_name().unwrap()));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        match path.extension() {
            Some(end) if end == "lz4" => {
                let bytes = decompress_size_prepended(&bytes).unwrap();
                fs::write(to.join(path.file_stem().unwrap()), bytes).unwrap();
            }
            _ => fs::write(to.join(path.file_name().unwrap()), bytes).unwrap(),
        }
    }
}

/// Keeps a database; what is kept already is not replaced.
fn pack(from: &Path, name: &str) {
    let to = this_format().join(name);
    fs::create_dir_all(this_format()).unwrap();
    fs::create_dir(&to).unwrap();
    for file in ["shard-0000.arena", "shard-0001.arena"] {
        let bytes = compress_prepend_size(&fs::read(from.join(file)).unwrap());
        fs::write(to.join(format!("{file}.lz4")), bytes).unwrap();
    }
    fs::copy(from.join("MANIFEST"), to.join("MANIFEST")).unwrap();
}

/// Keeps a database with journals; what is kept already is not replaced.
fn pack_journals(from: &Path, name: &str) {
    fs::create_dir_all(this_format()).unwrap();
    let to = this_format().join(name);
    fs::create_dir(&to).unwrap();
    fs::copy(from.join("MANIFEST"), to.join("MANIFEST")).unwrap();
    for shard in ["shard-0000", "shard-0001"] {
        fs::create_dir(to.join(shard)).unwrap();
        for file in fs::read_dir(from.join(shard)).unwrap() {
            let file = file.unwrap();
            let bytes = compress_prepend_size(&fs::read(file.path()).unwrap());
            let name = format!("{}.lz4", file.file_name().to_str().unwrap());
            fs::write(to.join(shard).join(name), bytes).unwrap();
        }
    }
}

/// Every kept database of this name, unpacked.
fn kept(name: &str) -> Vec<Place> {
    let formats = fs::read_dir(golden()).unwrap();
    let places = formats.map(|format| {
        let place = Place::new("golden");
        unpack(&format.unwrap().path().join(name), place.path());
        place
    });
    places.collect()
}

/// As all the others, but with ordered indexes over fields of each kind.
fn ordered_schema() -> RecordSchema {
    schema()
        .ordered_index("mail_group", &["mail", "group"])
        .ordered_index("bytes_name", &["bytes", "name"])
        .ordered_index("numbers", &["bool", "integer", "float", "moment"])
}

fn make_ordered(path: &Path) {
    let engine = settings().open(path).unwrap();
    let table = engine.create_records_with("records", ordered_schema());
    let (table, mut session) = (table.unwrap(), engine.session().unwrap());
    for number in 0..RECORDS {
        session.records(&table).insert(&record(number)).unwrap();
    }
    for number in (0..RECORDS).step_by(5) {
        assert!(session.records(&table).delete(name(number)).unwrap());
    }
    for (number, record) in records() {
        if number % 6 == 0 {
            assert!(session.records(&table).replace(&record).unwrap());
        }
    }
    drop(session);
    engine.close().unwrap();
}

/// Reads the records by their ordered indexes.
fn check_ordered(engine: &Engine, expected: &BTreeMap<u64, Vec<Value>>) {
    let table = engine.open_records_with("records").unwrap();
    assert_eq!(table.schema(), &ordered_schema());
    let mut session = engine.session().unwrap();
    let mut all = session.records(&table);
    let texts = |record: &Vec<Value>| match (&record[2], &record[1]) {
        (Value::Text(mail), Value::U64(group)) => (Some(mail.clone()), *group),
        (_, Value::U64(group)) => (None, *group),
        _ => panic!("{record:?} is of other kinds"),
    };
    let mut found = Vec::new();
    all.range("mail_group", .., |record| {
        found.push(texts(&record));
        ControlFlow::Continue(())
    })
    .unwrap();
    let mut wanted: Vec<_> = expected.values().map(texts).collect();
    wanted.sort();
    assert_eq!(found, wanted);
    for index in ["bytes_name", "numbers"] {
        let counted = all.count_range(index, ..).unwrap();
        assert_eq!(counted, expected.len() as u64, "{index}");
    }
    for record in expected.values() {
        let bytes = [record[8].clone(), record[0].clone()];
        let same = all.find("bytes_name", bytes).unwrap();
        assert_eq!(same, std::slice::from_ref(record));
        let numbers = [5, 3, 4, 6].map(|field: usize| record[field].clone());
        let same = all.find("numbers", numbers).unwrap();
        assert_eq!(same, std::slice::from_ref(record));
    }
}

#[test]
fn kept_ordered_indexes_are_read_checked_and_written() {
    let made = Place::new("golden-ordered");
    make_ordered(made.path());
    if std::env::var_os("ANCILE_TEST_GOLDEN_WRITE").is_some() {
        pack(made.path(), "ordered");
    }
    for place in kept("ordered").into_iter().chain([made]) {
        check_whole(place.path());
        let mut expected = records();
        let engine = settings().open(place.path()).unwrap();
        check_ordered(&engine, &expected);
        let table = engine.open_records_with("records").unwrap();
        let mut session = engine.session().unwrap();
        for number in (0..RECORDS).step_by(5) {
            session.records(&table).insert(&record(number)).unwrap();
            expected.insert(number, record(number));
        }
        drop(session);
        check_ordered(&engine, &expected);
        engine.close().unwrap();
        check_whole(place.path());
    }
}

fn check_whole(path: &Path) {
    let report = ancile::check(path).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn databases_of_every_kept_format_are_read_checked_and_written() {
    assert!(this_format().is_dir(), "this format has no kept files");
    for place in kept("closed") {
        check_whole(place.path());
        let engine = settings().read_only(true).open(place.path()).unwrap();
        check_all(&engine, &BTreeMap::new());
        engine.close().unwrap();
        let engine = settings().open(place.path()).unwrap();
        check_all(&engine, &BTreeMap::new());
        let later = change(&engine);
        check_all(&engine, &later);
        engine.close().unwrap();
        check_whole(place.path());
        let engine = settings().open(place.path()).unwrap();
        check_all(&engine, &later);
    }
}

#[test]
fn journals_of_every_kept_format_are_read_checked_written_and_gone_back_in() {
    for name in ["journal-closed", "journal-unclosed"] {
        assert!(this_format().join(name).is_dir(), "{name} is not kept");
        for place in kept(name) {
            check_whole(place.path());
            let engine = settings().read_only(true).open(place.path()).unwrap();
            check_all(&engine, &BTreeMap::new());
            engine.close().unwrap();
            let reach = Journals::read_only(place.path()).unwrap().reach().unwrap();
            assert!(!reach.epochs.is_empty(), "{name}");
            let engine = journaled().open(place.path()).unwrap();
            check_all(&engine, &BTreeMap::new());
            let later = change(&engine);
            check_all(&engine, &later);
            engine.close().unwrap();
            check_whole(place.path());
            let journals = Journals::open(place.path()).unwrap();
            journals.roll_back(reach.newest, None).unwrap();
            let engine = journaled().open(place.path()).unwrap();
            check_all(&engine, &BTreeMap::new());
            engine.close().unwrap();
            let journals = Journals::open(place.path()).unwrap();
            journals.roll_back(reach.oldest, None).unwrap();
            check_whole(place.path());
        }
    }
}

#[test]
fn journals_that_are_made_today_hold_what_the_kept_ones_hold() {
    let (place, left) = (Place::new("made"), Place::new("left"));
    make(place.path(), &journaled());
    check_whole(place.path());
    let is_written = std::env::var_os("ANCILE_TEST_GOLDEN_WRITE").is_some();
    if is_written {
        pack_journals(place.path(), "journal-closed");
    }
    let engine = journaled().open(place.path()).unwrap();
    check_all(&engine, &BTreeMap::new());
    engine.close().unwrap();
    leave_journals_open(place.path(), left.path());
    if is_written {
        pack_journals(left.path(), "journal-unclosed");
    }
    let engine = journaled().open(left.path()).unwrap();
    check_all(&engine, &BTreeMap::new());
}

#[test]
fn databases_of_every_kept_format_that_were_not_closed_are_saved_whole() {
    for place in kept("unclosed") {
        let error = settings().open(place.path()).err().unwrap();
        assert!(matches!(error, OpenError::NeedsSalvage { .. }), "{error}");
        let report = ancile::check(place.path()).unwrap();
        assert_eq!(report.findings.len(), 2, "one a file: {report:?}");
        let mut salvage = Salvage::open(place.path()).unwrap();
        let mut saved = BTreeMap::new();
        for table in ["plain", "keyed", "records"] {
            let mut rows = Vec::new();
            let count = salvage.rows(table, |row| rows.push(row.values)).unwrap();
            assert!(count.left_out.is_empty(), "{:?}", count.left_out);
            saved.insert(table, rows);
        }
        assert_eq!(saved["plain"].len(), plain_rows().len());
        assert_eq!(
            saved["keyed"].len(),
            (0..ROWS).filter_map(keyed_row).count()
        );
        let records = records();
        assert_eq!(saved["records"].len(), records.len());
        assert!(
            records
                .values()
                .all(|record| saved["records"].contains(record))
        );
    }
}

#[test]
fn database_that_is_made_today_holds_what_the_kept_ones_hold() {
    let (place, left) = (Place::new("made"), Place::new("left"));
    make(place.path(), &settings());
    check_whole(place.path());
    let is_written = std::env::var_os("ANCILE_TEST_GOLDEN_WRITE").is_some();
    if is_written {
        pack(place.path(), "closed");
    }
    let engine = settings().open(place.path()).unwrap();
    check_all(&engine, &BTreeMap::new());
    engine.close().unwrap();
    leave_open(place.path(), left.path());
    if is_written {
        pack(left.path(), "unclosed");
    }
    let error = settings().open(left.path()).err().unwrap();
    assert!(matches!(error, OpenError::NeedsSalvage { .. }), "{error}");
}
