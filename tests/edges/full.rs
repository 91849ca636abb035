//! A disk that is full: writing is refused and goes on by itself, reading never stops, and nothing that was
//! acknowledged is lost.
//!
//! The disk is a small one in memory, mounted where only the process under test sees it. Where the system
//! does not allow that, the test says so and does nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ancile::{
    BackupError, Durability, Engine, EngineBuilder, Error, Schema, SurrogateId, Table, Verbs,
};

use super::database::Place;
use super::support::watchdog;

const DIRECTORY: &str = "ANCILE_FULL_DIRECTORY";
const KEYS: u64 = 2_000;
/// More than there ever is to write.
const NEVER: u64 = 1 << 40;

type Wide = [u64; 16];

/// With checkpoints, or without any for as long as a test runs.
fn settings(checkpoint_bytes: u64) -> EngineBuilder {
    Engine::builder()
        .shards(2)
        .arena_bytes(64 << 20)
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(checkpoint_bytes)
        .retention_bytes(1 << 20)
}

/// Mounts a disk of 64 MiB and runs this test there; false if this is that run.
fn runs_on_a_small_disk() -> bool {
    if std::env::var_os(DIRECTORY).is_some() {
        return false;
    }
    let place = Place::new("small");
    fs::create_dir(place.path()).unwrap();
    let mount = "mount -t tmpfs -o size=64m none \"$0\" || exit 77; exec \"$@\"";
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", mount])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, place.path())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: there is no unshare here: {error}");
            return true;
        }
    };
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if told.contains("1 passed") {
        print!("{told}");
    } else if output.status.code() == Some(77) || !told.contains("running 1 test") {
        println!("skipped: no disk can be mounted here: {}", errors.trim());
    } else {
        panic!("{}\n{told}\n{errors}", output.status);
    }
    true
}

fn open(path: &Path, checkpoint_bytes: u64) -> (Engine, Table<Wide>) {
    let engine = settings(checkpoint_bytes).open(path).unwrap();
    let table = engine
        .open_table("table")
        .or_else(|_| engine.create_table("table", Schema::cells(16).keyed()));
    let table = table.unwrap();
    (engine, table)
}

/// Takes all the space that is left.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let mut file = File::create(&path).unwrap();
    for bytes in [1 << 20, 4096] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
    path
}

/// Rows that were acknowledged, and the state of who writes them.
#[derive(Default)]
struct Rows {
    there: BTreeMap<u64, u64>,
    next: u64,
}

impl Rows {
    /// Writes one more row.
    fn write(&mut self, engine: &Engine, table: &Table<Wide>) -> Result<(), Error> {
        self.next += 1;
        let key = self.next % KEYS;
        let mut session = engine.session()?;
        session.upsert(table, SurrogateId(key), &[self.next; 16])?;
        self.there.insert(key, self.next);
        Ok(())
    }

    fn check(&self, engine: &Engine, table: &Table<Wide>) {
        let mut session = engine.session().unwrap();
        for (&key, &value) in &self.there {
            let row = session.select(table, SurrogateId(key)).unwrap();
            assert_eq!(row, Some([value; 16]), "key {key}");
        }
        assert_eq!(session.count(table).unwrap(), self.there.len() as u64);
    }
}

/// Writes until shard after shard refuses to.
fn write_until_refused(rows: &mut Rows, engine: &Engine, table: &Table<Wide>) {
    let mut refused = 0;
    for _ in 0..20_000 {
        match rows.write(engine, table) {
            // One shard may have room longer than the other.
            Ok(()) => refused = 0,
            Err(error) => {
                assert_eq!(error, Error::JournalFull);
                refused += 1;
            }
        }
        if refused == 50 {
            return;
        }
    }
    panic!("writing goes on where there is no space");
}

/// Writes until every shard accepts it again: nobody has to do anything.
fn write_until_accepted(rows: &mut Rows, engine: &Engine, table: &Table<Wide>) {
    let mut accepted = 0;
    while accepted < 50 {
        accepted += 1;
        if let Err(error) = rows.write(engine, table) {
            assert_eq!(error, Error::JournalFull);
            accepted = 0;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Without checkpoints, which would make space.
fn journal_that_only_grows(disk: &Path, rows: &mut Rows) {
    let (engine, table) = open(&disk.join("database"), NEVER);
    for round in 0..3 {
        for _ in 0..1_000 {
            rows.write(&engine, &table).unwrap();
        }
        let ballast = fill(disk);
        write_until_refused(rows, &engine, &table);
        rows.check(&engine, &table);
        let copied = engine.backup(disk.join("backup"));
        let is_refused = matches!(copied, Err(BackupError::Files(_) | BackupError::Open(_)));
        assert!(is_refused && !disk.join("backup").exists(), "round {round}");
        fs::remove_file(ballast).unwrap();
        write_until_accepted(rows, &engine, &table);
        rows.check(&engine, &table);
    }
    engine.close().unwrap();
}

/// Checkpoints need space, too, and make some: writing may stop and go on again.
fn checkpoints_without_space(disk: &Path, rows: &mut Rows) {
    let (engine, table) = open(&disk.join("database"), 1 << 18);
    rows.check(&engine, &table);
    let ballast = fill(disk);
    let mut refused = 0;
    for _ in 0..4_000 {
        if let Err(error) = rows.write(&engine, &table) {
            assert_eq!(error, Error::JournalFull);
            refused += 1;
        }
    }
    rows.check(&engine, &table);
    fs::remove_file(ballast).unwrap();
    engine.close().unwrap();
    println!("with checkpoints {refused} of 4,000 writes were refused");
}

/// It may not be closed cleanly where there is no space, nor be opened; but it is there later.
fn opening_without_space(disk: &Path, rows: &mut Rows) {
    let path = disk.join("database");
    let (engine, table) = open(&path, NEVER);
    rows.check(&engine, &table);
    let ballast = fill(disk);
    write_until_refused(rows, &engine, &table);
    drop(engine);
    if let Ok(engine) = settings(NEVER).open(&path) {
        rows.check(&engine, &engine.open_table("table").unwrap());
    }
    let reader = settings(NEVER).read_only(true).open(&path).unwrap();
    rows.check(&reader, &reader.open_table("table").unwrap());
    drop(reader);
    fs::remove_file(ballast).unwrap();
    let (engine, table) = open(&path, NEVER);
    rows.check(&engine, &table);
    rows.write(&engine, &table).unwrap();
    engine.close().unwrap();
}

#[test]
fn full_disk_stops_writing_until_there_is_space_and_loses_nothing() {
    if runs_on_a_small_disk() {
        return;
    }
    let _watchdog = watchdog(300);
    let disk = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let mut rows = Rows::default();
    journal_that_only_grows(&disk, &mut rows);
    checkpoints_without_space(&disk, &mut rows);
    opening_without_space(&disk, &mut rows);
    let report = ancile::check(disk.join("database")).unwrap();
    assert!(report.is_whole(), "{report:?}");
    println!("{} rows were written", rows.next);
}
