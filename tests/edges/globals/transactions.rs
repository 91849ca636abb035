//! Globals in transactions: of one shard, and over shards.

use std::ops::ControlFlow;

use ancile::{
    Data, Engine, Error, GlobalKey, Isolation, Number, Routing, TransactionGlobals,
    TransactionOptions, Verbs, key,
};

use super::{Model, ROUTINGS, begins_with, key_of, names, random_name, value_of};
use crate::edges::database::Place;
use crate::edges::support::{Random, engine};

#[test]
fn a_closures_changes_of_globals_are_undone_with_it() {
    let engine = engine(1);
    let globals = engine.globals().unwrap();
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    let mut random = Random::of(5);
    println!("seed 5");
    for _ in 0..600 {
        let (name, value) = (random_name(&mut random), value_of(&mut random));
        session
            .globals(&globals)
            .set(&key_of(&name), &value)
            .unwrap();
        model.insert(name, value);
    }
    for round in 0..60 {
        let mut changed = model.clone();
        let mut steps = Vec::new();
        for _ in 0..random.below(30) {
            let name = random_name(&mut random);
            steps.push((name, random.below(4), value_of(&mut random)));
        }
        let outcome = round % 3;
        let done: Result<(), Error> = session.on(0, |context| {
            let mut own = context.globals(&globals)?;
            for (name, what, value) in &steps {
                let key = key_of(name);
                if *what == 0 {
                    own.kill(&key)?;
                    changed.retain(|other, _| !begins_with(other, name));
                } else if *what == 1 {
                    let sum = own.increment(&key, 1)?;
                    changed.insert(name.clone(), sum.to_string().into_bytes());
                } else {
                    own.set(&key, value)?;
                    changed.insert(name.clone(), value.clone());
                }
            }
            match outcome {
                0 => Ok(()),
                1 => Err(Error::ReadOnly),
                _ => panic!("as planned"),
            }
        });
        assert_eq!(done.is_ok(), outcome == 0);
        if outcome == 0 {
            model = changed;
        }
        let mut found = Vec::new();
        let mut verbs = session.globals(&globals);
        for name in [&b"\x01"[..], b"x", b"xy"] {
            verbs
                .scan(&GlobalKey::new(name).unwrap(), |key, value| {
                    found.push((key.to_key().unwrap(), value.to_vec()));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        let wanted: Vec<_> = model
            .iter()
            .map(|(name, value)| (key_of(name), value.clone()))
            .collect();
        assert_eq!(found, wanted, "round {round}");
    }
}

/// One random change in a transaction, there and in the model.
fn change<S: Verbs>(
    random: &mut Random,
    globals: &mut TransactionGlobals<'_, '_, S>,
    model: &mut Model,
) -> Result<(), Error> {
    let name = random_name(random);
    let key = key_of(&name);
    match random.below(6) {
        0 => assert_eq!(globals.get(&key)?.as_ref(), model.get(&name)),
        1 => {
            let mut below = model.keys().filter(|other| begins_with(other, &name));
            let data = Data {
                has_value: model.contains_key(&name),
                has_descendants: below.any(|other| *other != name),
            };
            assert_eq!(globals.data(&key)?, data);
        }
        2 => {
            globals.kill(&key)?;
            model.retain(|other, _| !begins_with(other, &name));
        }
        3 => {
            let sum = globals.increment(&key, 5)?;
            let old = model.get(&name).map_or(&[][..], |value| value);
            assert_eq!(sum, Number::of_value(old).unwrap().plus(5.into()).unwrap());
            model.insert(name, sum.to_string().into_bytes());
        }
        _ => {
            let value = value_of(random);
            globals.set(&key, &value)?;
            model.insert(name, value);
        }
    }
    Ok(())
}

#[test]
fn a_transaction_sees_its_own_changes_and_all_of_them_happen_or_none() {
    let place = Place::new("globals");
    for (number, routing) in ROUTINGS.into_iter().enumerate() {
        for shards in [1, 3] {
            let engine = if number % 2 == 0 {
                engine(shards)
            } else {
                let path = place.path().join(format!("{number}-{shards}"));
                std::fs::create_dir_all(&path).unwrap();
                let settings = Engine::builder().shards(shards).arena_bytes(64 << 20);
                settings.open(path).unwrap()
            };
            println!("{routing:?}, {shards} shards");
            transactions_on(&engine, routing, number as u64);
            engine.close().unwrap();
        }
    }
}

fn transactions_on(engine: &Engine, routing: Routing, seed: u64) {
    let globals = engine.create_globals("g", routing).unwrap();
    let mut session = engine.session().unwrap();
    let mut random = Random::of(seed);
    let mut model = Model::new();
    for round in 0..80 {
        let isolation = if round % 2 == 0 {
            Isolation::Serializable
        } else {
            Isolation::ReadCommitted
        };
        let mut changed = model.clone();
        let fails = round % 5 == 0;
        let options = TransactionOptions::new(isolation);
        let done: Result<(), Error> = session.transaction_with(options, |transaction| {
            for _ in 0..random.below(12) {
                let mut nodes = transaction.globals(&globals);
                change(&mut random, &mut nodes, &mut changed)?;
                if random.below(4) == 0 {
                    let savepoint = transaction.savepoint();
                    let mut aside = changed.clone();
                    let mut nodes = transaction.globals(&globals);
                    for _ in 0..3 {
                        change(&mut random, &mut nodes, &mut aside)?;
                    }
                    transaction.roll_back_to(savepoint);
                }
            }
            if fails { Err(Error::ReadOnly) } else { Ok(()) }
        });
        assert_eq!(done.is_ok(), !fails, "{done:?}");
        if !fails {
            model = changed;
        }
        let mut found = Vec::new();
        for name in names(&model) {
            session
                .globals(&globals)
                .scan(&key_of(&name), |key, value| {
                    found.push((key.to_key().unwrap(), value.to_vec()));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        let wanted: Vec<_> = model
            .iter()
            .map(|(name, value)| (key_of(name), value.clone()))
            .collect();
        assert_eq!(found, wanted, "round {round}");
        assert_eq!(session.globals(&globals).len(), Ok(wanted.len() as u64));
    }
}

#[test]
fn counters_that_many_transactions_and_single_verbs_add_to_lose_nothing() {
    let engine = engine(3);
    let globals = engine.create_globals("g", Routing::FullKey).unwrap();
    let keys: Vec<GlobalKey> = (0..6).map(|n| key!["n", n].unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (engine, globals, keys) = (&engine, &globals, &keys);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                let mut random = Random::of(thread);
                for round in 0..200 {
                    let one = random.below(6) as usize;
                    let other = random.below(6) as usize;
                    if round % 4 == 3 {
                        session.globals(globals).increment(&keys[one], 1).unwrap();
                        session
                            .globals(globals)
                            .increment_batch(&[&keys[other]], 1, |_, _| {})
                            .unwrap();
                        continue;
                    }
                    session
                        .transaction(|transaction| {
                            let mut globals = transaction.globals(globals);
                            globals.increment(&keys[one], 1)?;
                            globals.increment(&keys[other], 1)
                        })
                        .unwrap();
                }
            });
        }
    });
    let mut session = engine.session().unwrap();
    let mut sum = 0;
    session
        .globals(&globals)
        .scan(&key!["n"].unwrap(), |_, value| {
            sum += std::str::from_utf8(value).unwrap().parse::<u64>().unwrap();
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(sum, 3 * 200 * 2);
}

#[test]
fn who_relies_on_nothing_being_below_a_key_is_not_passed_by_who_sets_something_there() {
    // Each transaction claims the room if nobody has: never are there two claims.
    let engine = engine(3);
    let globals = engine.create_globals("g", Routing::FullKey).unwrap();
    let mut session = engine.session().unwrap();
    for round in 0..60_u64 {
        let room = key!["room", round].unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (engine, globals, room) = (&engine, &globals, &room);
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    let options = TransactionOptions::new(Isolation::Serializable);
                    let done = session.transaction_with(options, |transaction| {
                        let mut globals = transaction.globals(globals);
                        if globals.data(room)?.has_descendants {
                            return Ok(());
                        }
                        let claim = room.child(thread)?;
                        globals.set(&claim, "mine")
                    });
                    done.unwrap();
                });
            }
        });
        assert_eq!(session.globals(&globals).count(&room), Ok(1));
    }
}
