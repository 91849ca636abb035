//! Files whose bytes were changed: what is met of it is an error, for ever; never a crash, a hang or a
//! key that is none.

use std::fs;
use std::ops::ControlFlow;

use ancile::{Engine, EngineBuilder, Error, GlobalKey, Globals, Session, Verbs, key};

use super::{key_of, random_name, value_of};
use crate::edges::database::Place;
use crate::edges::support::{Random, watchdog};

const ROUNDS: u64 = 120;

const PAGE: u64 = 4096;

/// Where the memory of tables begins in a shard's file.
const EXTENTS: u64 = 2 << 20;

fn settings() -> EngineBuilder {
    Engine::builder().shards(1).arena_bytes(64 << 20)
}

/// Uses all verbs; whether one has met damage.
fn use_all(session: &mut Session, globals: &Globals, random: &mut Random) -> bool {
    let mut met = false;
    let mut says = |result: Result<(), Error>| match result {
        Ok(()) => {}
        Err(Error::Damaged { shard: 0 }) => met = true,
        Err(error) => panic!("{error}"),
    };
    let mut verbs = session.globals(globals);
    for name in [&b"x"[..], b"xy", b"\x01"] {
        let name = GlobalKey::new(name).unwrap();
        let mut last = Vec::new();
        says(verbs.scan(&name, |key, _| {
            assert!(
                last.is_empty() || last.as_slice() != key.as_bytes(),
                "a key twice"
            );
            last = key.as_bytes().to_vec();
            ControlFlow::Continue(())
        }));
        says(verbs.count(&name).map(drop));
        let mut next = verbs.first(&name);
        for _ in 0..2_000 {
            match next {
                Ok(Some(key)) => next = verbs.next(&key),
                other => {
                    says(other.map(drop));
                    break;
                }
            }
        }
    }
    for _ in 0..60 {
        let key = key_of(&random_name(random));
        says(verbs.get(&key).map(drop));
        says(verbs.data(&key).map(drop));
        says(verbs.query(&key).map(drop));
        says(verbs.query_back(&key).map(drop));
        says(verbs.set(&key, value_of(random)).map(drop));
        says(verbs.get_batch(&[&key]).map(drop));
        let sum = verbs.increment(&key, 1).map(drop);
        // What is there instead may be worth a number that is too large.
        says(sum.or_else(|error| {
            if matches!(error, Error::Key(_)) {
                Ok(())
            } else {
                Err(error)
            }
        }));
        if random.below(8) == 0 {
            says(verbs.kill(&key).map(drop));
        }
    }
    let done = session.transaction(|transaction| {
        let mut globals = transaction.globals(globals);
        globals.data(&key!["x"]?)?;
        globals.kill(&key!["x", 1]?)?;
        globals.set(&key!["x", 1, 2]?, "new")
    });
    says(done);
    met
}

#[test]
fn changed_bytes_of_globals_are_met_with_errors() {
    let _watchdog = watchdog(300);
    let place = Place::new("globals-damaged");
    let whole = place.path().join("whole");
    let mut random = Random::seeded();
    fs::create_dir_all(&whole).unwrap();
    let engine = settings().open(&whole).unwrap();
    let globals = engine.globals().unwrap();
    let mut session = engine.session().unwrap();
    for _ in 0..800 {
        let key = key_of(&random_name(&mut random));
        let value = value_of(&mut random);
        session.globals(&globals).set(&key, value).unwrap();
    }
    let used = engine.used_bytes().unwrap()[0];
    engine.close().unwrap();
    let (mut refused, mut met) = (0, 0);
    for round in 0..ROUNDS {
        let copy = place.path().join(format!("{round}"));
        fs::create_dir_all(&copy).unwrap();
        for file in fs::read_dir(&whole).unwrap() {
            let file = file.unwrap();
            let mut bytes = fs::read(file.path()).unwrap();
            let is_arena = bytes.len() as u64 > EXTENTS;
            for _ in 0..if is_arena { random.below(6) + 1 } else { 0 } {
                // Most of a page is values; what refers to something is at its start.
                let page = EXTENTS + random.below(used / PAGE) * PAGE;
                let at = (page + random.below(200)) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            fs::write(copy.join(file.file_name()), bytes).unwrap();
        }
        match settings().open(&copy) {
            Err(_) => refused += 1,
            Ok(engine) => {
                let globals = engine.globals().unwrap();
                let mut session = engine.session().unwrap();
                met += u64::from(use_all(&mut session, &globals, &mut random));
                let _ = engine.close();
            }
        }
        fs::remove_dir_all(&copy).unwrap();
    }
    println!("{ROUNDS} files: {refused} refused, in {met} others errors");
    assert!(met > ROUNDS / 10);
}
