//! Space of globals: what is removed goes back to the system when asked, and nothing else is lost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ancile::{Durability, Engine, GlobalKey, Globals, KeyRange, Routing, Session, Verbs, key};

use super::super::database::{Place, settings};
use super::super::support::{Random, watchdog};

type Model = BTreeMap<GlobalKey, Vec<u8>>;

/// What there is in each shard however few nodes there are: pages that the tree keeps free, and what the shard
/// keeps for transactions.
const SPARE_BYTES: u64 = 112 << 10;

/// All nodes of a set.
fn nodes(session: &mut Session, store: &Globals) -> Model {
    let all = KeyRange {
        start: Vec::new(),
        end: vec![0xff; 256],
    };
    let mut nodes = Model::new();
    let scanned = session.globals(store).scan_range(&all, |key, value| {
        nodes.insert(key.to_key().unwrap(), value.to_vec());
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    nodes
}

/// Adds nodes, until there are so many; of some of them the values are long.
fn fill(
    session: &mut Session,
    store: &Globals,
    model: &mut Model,
    count: usize,
    random: &mut Random,
) {
    let mut entries = Vec::new();
    while model.len() < count {
        let key = key!["node", random.below(1_000), random.below(1 << 40), "leaf"].unwrap();
        let length = match random.below(400) {
            0 => 20_000,
            _ => random.below(300),
        };
        let value = vec![random.below(256) as u8; length as usize];
        entries.push((key.clone(), value.clone()));
        model.insert(key, value);
    }
    session.globals(store).set_batch(&entries).unwrap();
}

/// Removes all but one of ten.
fn remove_most(session: &mut Session, store: &Globals, model: &mut Model, random: &mut Random) {
    let keys: Vec<GlobalKey> = model.keys().cloned().collect();
    for key in keys.into_iter().filter(|_| random.below(10) > 0) {
        assert_eq!(session.globals(store).kill(&key), Ok(1));
        model.remove(&key);
    }
}

/// Bytes of keys and values.
fn live_bytes(model: &Model) -> u64 {
    let bytes = model
        .iter()
        .map(|(key, value)| key.as_bytes().len() + value.len());
    bytes.sum::<usize>() as u64
}

fn used(engine: &Engine) -> u64 {
    engine.used_bytes().unwrap().iter().sum()
}

#[test]
fn ten_rounds_of_removing_most_nodes_and_setting_others_stay_near_what_is_live() {
    let _watchdog = watchdog(600);
    let random = &mut Random::seeded();
    for (durability, rounds) in [(Durability::Process, 10), (Durability::Commit, 3)] {
        let place = Place::new("globals-churn");
        let settings = || settings().shards(2).durability(durability);
        let engine = settings().open(place.path()).unwrap();
        let mut session = engine.session().unwrap();
        let store = engine.create_globals("g", Routing::FullKey).unwrap();
        let (mut model, mut worst) = (Model::new(), 0.0_f64);
        let mut compact = |model: &Model, spare: u64| {
            engine.compact().unwrap();
            let bytes = used(&engine) - spare;
            worst = worst.max(bytes as f64 / live_bytes(model) as f64);
        };
        for _ in 0..rounds {
            fill(&mut session, &store, &mut model, 12_000, random);
            compact(&model, 0);
            remove_most(&mut session, &store, &mut model, random);
            compact(&model, 2 * SPARE_BYTES);
        }
        println!("{durability:?}: {worst:.2} times the live bytes");
        assert!(worst <= 1.5, "{durability:?}: {worst:.2}");
        assert!(nodes(&mut session, &store) == model);
        // What is left lies together, so that the files could be cut behind it.
        let space = engine.space().unwrap();
        let free: u64 = space.iter().map(|shard| shard.free_bytes).sum();
        assert!(free < live_bytes(&model) / 2 + 2 * SPARE_BYTES, "{space:?}");
        drop(session);
        engine.close().unwrap();
        let report = ancile::check(place.path()).unwrap();
        assert!(report.is_whole(), "{report:?}");
        let engine = settings().open(place.path()).unwrap();
        let store = engine.open_globals("g").unwrap();
        assert!(nodes(&mut engine.session().unwrap(), &store) == model);
        engine.close().unwrap();
    }
}

#[test]
fn compacting_while_others_change_globals_loses_nothing() {
    let _watchdog = watchdog(600);
    let engine = settings().shards(2).build().unwrap();
    let store = engine.create_globals("g", Routing::NameAndFirst).unwrap();
    let ends = AtomicBool::new(false);
    let models: Vec<Model> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2_u64)
            .map(|worker| {
                let (engine, store, ends) = (&engine, &store, &ends);
                scope.spawn(move || work(engine, store, worker, ends))
            })
            .collect();
        for _ in 0..20 {
            engine.compact().unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        let models = workers.into_iter().map(|worker| worker.join().unwrap());
        models.collect()
    });
    let mut session = engine.session().unwrap();
    let model: Model = models.into_iter().flatten().collect();
    assert!(nodes(&mut session, &store) == model);
    engine.compact().unwrap();
    assert!(nodes(&mut session, &store) == model);
}

/// Sets and removes nodes of a worker's own, until it is to end, one by one and in transactions.
fn work(engine: &Engine, store: &Globals, worker: u64, ends: &AtomicBool) -> Model {
    let mut random = Random::of(worker);
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    for round in 0.. {
        if round > 200 && ends.load(Ordering::Relaxed) {
            break;
        }
        let keys: Vec<GlobalKey> = (0..60)
            .map(|_| key!["own", worker, random.below(4_000)].unwrap())
            .collect();
        let value = vec![round as u8; random.below(3_000) as usize];
        let removes = random.below(3) > 0;
        let change = |model: &mut Model| {
            for key in &keys {
                match removes {
                    true => drop(model.remove(key)),
                    false => drop(model.insert(key.clone(), value.clone())),
                }
            }
        };
        if round % 4 == 0 {
            let done: ancile::Result<()> = session.transaction(|transaction| {
                let mut globals = transaction.globals(store);
                for key in &keys {
                    match removes {
                        true => globals.kill(key)?,
                        false => globals.set(key, &value)?,
                    }
                }
                Ok(())
            });
            done.unwrap();
        } else {
            let mut globals = session.globals(store);
            for key in &keys {
                match removes {
                    true => drop(globals.kill(key).unwrap()),
                    false => drop(globals.set(key, &value).unwrap()),
                }
            }
        }
        change(&mut model);
    }
    model
}
