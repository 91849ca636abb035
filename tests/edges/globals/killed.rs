//! A process that changes globals is killed at any moment, and its database opened again: transactions
//! over shards are there as a whole, in the order of their making, and none that was acknowledged is
//! missing.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ancile::{Durability, Engine, EngineBuilder, Error, Globals, Routing, Session, Verbs, key};

use crate::edges::database::Place;
use crate::edges::support::{Random, watchdog};

const DIRECTORY: &str = "ANCILE_GLOBALS_DIRECTORY";
const ROUNDS: u64 = 12;
/// Nodes that every transaction sets, spread over the shards.
const SPREAD: u64 = 9;

/// The database has journals.
const JOURNAL: &str = "ANCILE_GLOBALS_JOURNAL";

fn settings(has_journals: bool) -> EngineBuilder {
    let settings = Engine::builder().shards(3).arena_bytes(64 << 20);
    if !has_journals {
        return settings;
    }
    settings
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(256 << 10)
}

fn open(engine: &Engine) -> Globals {
    engine
        .open_globals("g")
        .or_else(|_| engine.create_globals("g", Routing::FullKey))
        .unwrap()
}

/// Nodes of the subtree of a number, with values that do not all fit a page.
fn below(number: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let value = move |n: u64| vec![b'v'; ((number * 31 + n * 977) % 6000) as usize];
    (0..number % 7 + 1).map(move |n| (n, value(n)))
}

/// Makes one number after the other, and tells of each.
fn work(directory: &Path) -> ! {
    let has_journals = std::env::var_os(JOURNAL).is_some();
    let engine = settings(has_journals).open(directory).unwrap();
    let globals = open(&engine);
    let mut session = engine.session().unwrap();
    let mut number = last(&mut session, &globals);
    set_singles(&mut session, &globals, number);
    println!("begun");
    loop {
        number += 1;
        make(&mut session, &globals, number).unwrap();
        println!("made {number}");
        std::io::stdout().flush().unwrap();
        set_singles(&mut session, &globals, number);
    }
}

/// Sets nodes one by one, in a batch.
fn set_singles(session: &mut Session, globals: &Globals, number: u64) {
    let single = |n: u64| (key!["single", n].unwrap(), number.to_string());
    let singles: Vec<_> = (0..20).map(single).collect();
    session.globals(globals).set_batch(&singles).unwrap();
}

fn last(session: &mut Session, globals: &Globals) -> u64 {
    let last = session.globals(globals).get_number(&key!["last"].unwrap());
    last.unwrap()
        .and_then(|number| number.to_i64())
        .unwrap_or(0) as u64
}

/// One transaction: a number replaces the one before it.
fn make(session: &mut Session, globals: &Globals, number: u64) -> Result<(), Error> {
    session.transaction(|transaction| {
        let mut globals = transaction.globals(globals);
        assert_eq!(
            globals.increment(&key!["last"]?, 1)?.to_i64(),
            Some(number as i64)
        );
        for n in 0..SPREAD {
            globals.set(&key!["spread", n]?, number.to_string())?;
        }
        globals.kill(&key!["tree"]?)?;
        for (n, value) in below(number) {
            globals.set(&key!["tree", number, n]?, value)?;
        }
        Ok(())
    })
}

/// Whether all that is there is one number's.
fn check(engine: &Engine, acknowledged: u64) -> u64 {
    let globals = open(engine);
    let mut session = engine.session().unwrap();
    let number = last(&mut session, &globals);
    assert!(
        number >= acknowledged,
        "{number}, and {acknowledged} was told"
    );
    let mut globals = session.globals(&globals);
    if number > 0 {
        for n in 0..SPREAD {
            let value = globals.get_text(&key!["spread", n].unwrap()).unwrap();
            assert_eq!(value, Some(number.to_string()), "a part of a transaction");
        }
    }
    let tree = if number > 0 { below(number).count() } else { 0 };
    assert_eq!(globals.count(&key!["tree"].unwrap()), Ok(tree as u64));
    for (n, value) in below(number).take(tree) {
        let found = globals.get(&key!["tree", number, n].unwrap()).unwrap();
        assert_eq!(found, Some(value));
    }
    for n in 0..20 {
        // The last batch may be there in part.
        let single = globals.get_number(&key!["single", n].unwrap()).unwrap();
        let single = single.map_or(0, |number| number.to_i64().unwrap() as u64);
        assert!(
            single + 1 >= number && single <= number,
            "{single} of {number}"
        );
    }
    number
}

#[test]
fn killed_process_leaves_transactions_over_globals_whole_and_in_order() {
    kill_again_and_again(false);
}

#[test]
fn killed_process_with_journals_leaves_transactions_over_globals_whole_and_in_order() {
    kill_again_and_again(true);
}

fn kill_again_and_again(has_journals: bool) {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        work(Path::new(&directory));
    }
    let _watchdog = watchdog(120);
    let place = Place::new("globals-killed");
    let mut random = Random::seeded();
    let (mut acknowledged, mut made) = (0, 0);
    for _ in 0..ROUNDS {
        let name = std::thread::current().name().unwrap().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        if has_journals {
            command.env(JOURNAL, "1");
        }
        let mut process = command
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, place.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        while !lines.next().unwrap().ends_with("begun") {}
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        process.kill().unwrap();
        let told = lines.filter_map(|line| line.strip_prefix("made ")?.parse().ok());
        acknowledged = told.last().unwrap_or(acknowledged);
        let status = process.wait().unwrap();
        assert_eq!(status.code(), None, "the process has ended itself");
        assert!(ancile::check(place.path()).unwrap().is_whole());
        let engine = settings(has_journals).open(place.path()).unwrap();
        made = check(&engine, acknowledged);
        engine.close().unwrap();
    }
    println!("{made} transactions in {ROUNDS} lives");
    assert!(made > ROUNDS);
}
