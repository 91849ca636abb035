//! Backups of databases in use: what they hold, and what is none.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ancile::{
    BackupError, Engine, Error, Isolation, OpenError, Resident, Schema, SurrogateId, Table,
    TransactionOptions, Verbs,
};

use super::database::{Place, settings};
use super::journals::{assert_same, journaled, state};
use super::support::{Random, watchdog};

const ACCOUNTS: u64 = 400;
const BALANCE: u64 = 1_000;

fn bank(engine: &Engine) -> Table<[u64; 2]> {
    let accounts = Schema::cells(2).keyed();
    let accounts = engine.create_table("accounts", accounts).unwrap();
    let keys: Vec<SurrogateId> = (0..ACCOUNTS).map(SurrogateId).collect();
    let rows = vec![[BALANCE, 0]; ACCOUNTS as usize];
    let mut session = engine.session().unwrap();
    session.insert_keyed_batch(&accounts, &keys, &rows).unwrap();
    accounts
}

/// The sum of all accounts, and how often money has come to or gone from any.
fn total(engine: &Engine) -> (u64, u64) {
    let accounts = engine.open_table::<[u64; 2]>("accounts").unwrap();
    let (mut sum, mut moves) = (0, 0);
    let scanned = engine.session().unwrap().scan(&accounts, |_, _, row| {
        sum += row[0];
        moves += row[1];
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    (sum, moves)
}

/// Moves money until it is told to stop; counts what was acknowledged.
fn transfer(
    engine: &Engine,
    accounts: &Table<[u64; 2]>,
    random: &mut Random,
    (stop, done): (&AtomicBool, &AtomicU64),
) {
    let mut session = engine.session().unwrap();
    let options = TransactionOptions::new(Isolation::Serializable).tries(u32::MAX);
    while !stop.load(Ordering::Relaxed) {
        let from = random.below(ACCOUNTS);
        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let (from, to) = (SurrogateId(from), SurrogateId(to));
        let amount = random.below(100);
        let moved = session.transaction_with(options, |transaction| {
            let [have, sent] = transaction.select(accounts, from)?.unwrap();
            let [other, got] = transaction.select(accounts, to)?.unwrap();
            let amount = amount.min(have);
            transaction.update(accounts, from, &[have - amount, sent + 1])?;
            transaction.update(accounts, to, &[other + amount, got + 1])?;
            Ok::<_, Error>(())
        });
        moved.unwrap();
        done.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn backup_under_load_restores_to_a_database_whose_total_is_right() {
    let _watchdog = watchdog(300);
    let place = Place::new("bank");
    let engine = journaled().open(place.path()).unwrap();
    let accounts = bank(&engine);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let random = Random::seeded();
    let backups = Place::new("bank-backups");
    fs::create_dir(backups.path()).unwrap();
    let at = |name: String| backups.path().join(name);
    let mut before = Vec::new();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let random = random.fork(worker);
            let (engine, accounts, stop, done) = (&engine, &accounts, &stop, &done);
            scope.spawn(move || transfer(engine, accounts, &mut { random }, (stop, done)));
        }
        for round in 0..6 {
            // Checkpoints come between them.
            while done.load(Ordering::SeqCst) < (round + 1) * 1_500 {
                std::thread::yield_now();
            }
            before.push(done.load(Ordering::SeqCst));
            let (mut told, mut last) = (0, (0, 0));
            let to = at(format!("backup-{round}"));
            let made = match round % 2 {
                0 => engine.backup_with(&to, |done, all| {
                    told += 1;
                    last = (done, all);
                }),
                _ => ancile::backup(place.path(), &to, |done, all| {
                    told += 1;
                    last = (done, all);
                }),
            };
            let made = made.unwrap();
            assert!(made.bytes > 0 && made.epoch > 0);
            if round % 2 == 0 {
                assert!(told > 2 && last == (made.bytes, made.bytes), "{last:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let after = done.load(Ordering::SeqCst);
    engine.close().unwrap();
    let mut moves_before = 0;
    for (round, acknowledged) in before.iter().enumerate() {
        let (from, to) = (
            at(format!("backup-{round}")),
            at(format!("restored-{round}")),
        );
        assert!(ancile::check(&from).unwrap().is_whole(), "as it lies there");
        ancile::restore(&from, &to).unwrap();
        let engine = journaled().must_exist(true).open(&to).unwrap();
        let (sum, moves) = total(&engine);
        engine.close().unwrap();
        assert_eq!(sum, ACCOUNTS * BALANCE, "round {round}");
        assert!(
            moves >= 2 * acknowledged && moves <= 2 * after,
            "round {round}"
        );
        assert!(moves > moves_before, "round {round}");
        moves_before = moves;
    }
}

/// A database with some of everything, and a backup of it.
fn backed_up(place: &Place) -> Engine {
    fs::create_dir(place.path()).unwrap();
    let engine = journaled().open(place.path().join("database")).unwrap();
    super::damage::fill(&engine);
    engine.backup(place.path().join("backup")).unwrap();
    engine
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(self::files(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files
}

#[test]
fn backup_holds_what_there_was_and_is_read_but_not_changed() {
    let _watchdog = watchdog(120);
    let place = Place::new("held");
    let engine = backed_up(&place);
    let there = state(&engine);
    let keyed = engine.open_table::<[u64; 2]>("keyed").unwrap();
    let mut session = engine.session().unwrap();
    session.upsert(&keyed, SurrogateId(1), &[9; 2]).unwrap();
    drop(session);
    engine.close().unwrap();
    let backup = place.path().join("backup");
    let refused = journaled().open(&backup).map(drop);
    assert!(matches!(refused, Err(OpenError::NoDatabase { .. })));
    let reader = settings().read_only(true).open(&backup).unwrap();
    assert_same(&state(&reader), &there, "the backup as it lies there");
    assert!(matches!(
        reader.backup(place.path().join("other")),
        Err(BackupError::ReadOnly)
    ));
    reader.close().unwrap();
    let restored = place.path().join("restored");
    ancile::restore(&backup, &restored).unwrap();
    let engine = journaled().open(&restored).unwrap();
    assert_same(&state(&engine), &there, "the restored database");
    // It is a database as others are.
    engine.backup(place.path().join("again")).unwrap();
    engine.close().unwrap();
}

#[test]
fn backup_of_which_a_file_is_cut_short_changed_or_missing_is_refused() {
    let _watchdog = watchdog(300);
    let place = Place::new("cut");
    backed_up(&place).close().unwrap();
    let (backup, to) = (place.path().join("backup"), place.path().join("restored"));
    let random = &mut Random::seeded();
    let all = files(&backup);
    assert!(all.len() >= 10, "{all:?}");
    for file in &all {
        let bytes = fs::read(file).unwrap();
        let name = file.display();
        let short = bytes.len() - 1 - random.below(bytes.len() as u64 / 2) as usize;
        let mut flipped = bytes.clone();
        flipped[random.below(bytes.len() as u64) as usize] ^= 1 << random.below(8);
        for damaged in [Some(bytes[..short].to_vec()), Some(flipped), None] {
            match damaged {
                Some(damaged) => fs::write(file, damaged).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            let restored = ancile::restore(&backup, &to);
            // The file that lists the others has no checksum of its own, but must say what is there.
            let is_list = file.ends_with("BACKUP") && restored.is_ok();
            assert!(restored.is_err() || is_list, "{name}");
            if is_list {
                fs::remove_dir_all(&to).unwrap();
            }
            assert!(!to.exists(), "{name}");
        }
        fs::write(file, bytes).unwrap();
    }
    ancile::restore(&backup, &to).unwrap();
    let again = ancile::restore(&backup, &to);
    assert!(matches!(again, Err(BackupError::Exists { .. })));
}

#[test]
fn backup_is_refused_where_it_cannot_be_made_and_copies_over_nothing() {
    let _watchdog = watchdog(120);
    let place = Place::new("refused-backup");
    fs::create_dir(place.path()).unwrap();
    let at = |name: &str| place.path().join(name);
    let engine = settings().open(at("mapped")).unwrap();
    assert!(matches!(
        engine.backup(at("a")),
        Err(BackupError::NoJournals)
    ));
    engine.close().unwrap();
    let refused = ancile::backup(at("mapped"), at("a"), |_, _| ());
    assert!(matches!(refused, Err(BackupError::NoJournals)));
    let engine = settings().build().unwrap();
    assert!(matches!(engine.backup(at("a")), Err(BackupError::InMemory)));
    let refused = ancile::backup(at("nowhere"), at("a"), |_, _| ());
    assert!(matches!(refused, Err(BackupError::Open(_))));
    let engine = Arc::new(journaled().open(at("database")).unwrap());
    fs::create_dir(at("there")).unwrap();
    fs::write(at("there").join("mine"), "mine").unwrap();
    let refused = engine.backup(at("there"));
    assert!(matches!(refused, Err(BackupError::Exists { .. })));
    assert_eq!(fs::read(at("there").join("mine")).unwrap(), b"mine");
    assert!(matches!(
        engine.backup(at("no").join("parent")),
        Err(BackupError::Open(_))
    ));
    let (inside, to) = (Arc::clone(&engine), at("a"));
    let task = engine.spawn(0, move |_: &mut Resident<'_>| inside.backup(to).map(drop));
    let refused = task.unwrap().join().unwrap();
    assert!(matches!(refused, Err(BackupError::InsideShard)));
    assert!(!at("a").exists());
}

#[test]
fn backup_from_another_process_is_made_by_whoever_has_the_database_or_nobody() {
    let _watchdog = watchdog(120);
    let Some(program) = option_env!("CARGO_BIN_EXE_ancile") else {
        println!("skipped: this build has no command");
        return;
    };
    let place = Place::new("asked");
    let engine = backed_up(&place);
    let there = state(&engine);
    let at = |name: &str| place.path().join(name);
    let ask = |to: &str| {
        let mut command = Command::new(program);
        let command = command.arg("backup").arg("--json").arg(at("database"));
        let output = command.arg(at(to)).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, told) = ask("while-open");
    assert_eq!(code, Some(0), "{told}");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["epoch"], engine.durable_epoch().unwrap());
    assert_eq!(ask("while-open").0, Some(2), "it is there already");
    engine.close().unwrap();
    assert_eq!(ask("while-closed").0, Some(0));
    for name in ["while-open", "while-closed"] {
        let to = at(&format!("restored-{name}"));
        ancile::restore(at(name), &to).unwrap();
        let engine = journaled().open(&to).unwrap();
        assert_same(&state(&engine), &there, name);
    }
}

#[test]
fn socket_that_is_left_over_is_replaced_and_one_that_is_in_use_ends_with_its_engine() {
    let _watchdog = watchdog(120);
    let place = Place::new("socket");
    journaled().open(place.path()).unwrap().close().unwrap();
    let control = place.path().join("CONTROL");
    assert!(!control.exists(), "it ends with its engine");
    drop(UnixListener::bind(&control).unwrap());
    let to = place.path().with_extension("backup");
    // Nobody listens: so it is opened.
    ancile::backup(place.path(), &to, |_, _| ()).unwrap();
    fs::remove_dir_all(&to).unwrap();
    fs::write(&control, "").unwrap();
    let engine = journaled().open(place.path()).unwrap();
    ancile::backup(place.path(), &to, |_, _| ()).unwrap();
    fs::remove_dir_all(&to).unwrap();
    // What is no request is answered, and who says nothing keeps nobody from closing.
    let mut odd = UnixStream::connect(&control).unwrap();
    odd.write_all(b"{\"restore\":1}\n").unwrap();
    let answer = std::io::read_to_string(odd).unwrap();
    assert!(answer.contains("error"), "{answer}");
    let silent = UnixStream::connect(&control).unwrap();
    drop(UnixStream::connect(&control).unwrap());
    engine.close().unwrap();
    drop(silent);
    assert!(!control.exists());
}

#[test]
fn database_whose_path_is_too_long_for_a_socket_says_so_and_goes_without() {
    let place = Place::new("long");
    let long = place.path().join("d".repeat(100));
    let engine = journaled().open(&long).unwrap();
    let warnings = engine.warnings();
    let told = warnings.iter().any(|warning| warning.contains("CONTROL"));
    assert!(told, "{warnings:?}");
    engine.backup(place.path().join("backup")).unwrap();
    let refused = ancile::backup(&long, place.path().join("other"), |_, _| ());
    assert!(matches!(
        refused,
        Err(BackupError::Open(OpenError::InUse { .. }))
    ));
    engine.close().unwrap();
}

#[test]
fn closing_ends_a_backup_that_another_process_waits_for() {
    let _watchdog = watchdog(120);
    let place = Place::new("closing");
    fs::create_dir(place.path()).unwrap();
    let at = |name: &str| place.path().join(name);
    for round in 0..6 {
        let engine = journaled().open(at("database")).unwrap();
        if round == 0 {
            super::damage::fill(&engine);
        }
        let to = at(&format!("backup-{round}"));
        let asked = std::thread::scope(|scope| {
            let asks = scope.spawn(|| ancile::backup(at("database"), &to, |_, _| ()));
            while round > 0 && !to.exists() {
                std::thread::yield_now();
            }
            engine.close().unwrap();
            asks.join().unwrap()
        });
        match asked {
            Ok(_) => assert!(ancile::check(&to).unwrap().is_whole()),
            Err(error) => assert!(!to.join("MANIFEST").exists(), "{error}"),
        }
    }
}
