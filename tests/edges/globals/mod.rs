//! Globals: every verb against an ordered map, on any number of shards, by every routing.

mod compacted;
mod damaged;
mod dumped;
mod killed;
mod salvaged;
mod transactions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ancile::{
    Data, Engine, Error, GlobalEntries, GlobalKey, GlobalKeys, GlobalVerbs, Globals, KeyList,
    Number, Routing, Subscript, TableError, Verbs, key,
};

use super::database::Place;
use super::support::{Random, engine};

/// A subscript with the order that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Empty,
    /// In halves.
    Number(i64),
    Bytes(Vec<u8>),
}

type Name = (Vec<u8>, Vec<Part>);

/// The reference: a map whose order is that of the parts.
type Model = BTreeMap<Name, Vec<u8>>;

fn key_of((name, parts): &Name) -> GlobalKey {
    let mut key = GlobalKey::new(name).unwrap();
    for part in parts {
        match part {
            Part::Empty => key.push(""),
            Part::Number(halves) if halves % 2 == 0 => key.push(halves / 2),
            Part::Number(halves) => {
                let text = format!("{}.5", halves.unsigned_abs() / 2);
                let text = text.strip_prefix('0').unwrap_or(&text);
                let sign = if *halves < 0 { "-" } else { "" };
                key.push(format!("{sign}{text}"))
            }
            Part::Bytes(bytes) => key.push(&bytes[..]),
        }
        .unwrap();
    }
    key
}

fn random_part(random: &mut Random) -> Part {
    match random.below(8) {
        0 => Part::Empty,
        1..5 => Part::Number(random.below(9) as i64 - 4),
        _ => {
            let strings: [&[u8]; 6] = [
                b"a",
                b"\0",
                b"\x01",
                b"\xff",
                b"01",
                b"long enough to be told",
            ];
            Part::Bytes(strings[random.below(6) as usize].to_vec())
        }
    }
}

fn random_name(random: &mut Random) -> Name {
    let names: [&[u8]; 3] = [b"x", b"xy", b"\x01"];
    let depth = random.below(4);
    let parts = (0..depth).map(|_| random_part(random)).collect();
    (names[random.below(3) as usize].to_vec(), parts)
}

fn begins_with((name, parts): &Name, with: &Name) -> bool {
    *name == with.0 && parts.starts_with(&with.1)
}

fn value_of(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => vec![b'v'; random.below(6000) as usize],
        _ => random.below(1000).to_string().into_bytes(),
    }
}

/// The neighbours of a name on its level, by the model.
fn level(model: &Model, above: &Name) -> Vec<Name> {
    let depth = above.1.len() + 1;
    let below = model
        .keys()
        .filter(|name| begins_with(name, above) && name.1.len() >= depth);
    let mut level: Vec<Name> = below
        .map(|(name, parts)| (name.clone(), parts[..depth].to_vec()))
        .collect();
    level.dedup();
    level
}

fn names(model: &Model) -> Vec<Name> {
    let mut names: Vec<Name> = model
        .keys()
        .map(|(name, _)| (name.clone(), Vec::new()))
        .collect();
    names.dedup();
    names
}

struct Case<'a> {
    random: Random,
    model: &'a mut Model,
}

impl Case<'_> {
    /// One random operation, there and here.
    fn step<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>) {
        let random = &mut self.random;
        let name = random_name(random);
        let key = key_of(&name);
        match random.below(16) {
            0..4 => {
                let value = value_of(random);
                let replaced = globals.set(&key, &value).unwrap();
                assert_eq!(replaced, self.model.insert(name, value).is_some());
            }
            4 => assert_eq!(globals.get(&key).unwrap().as_ref(), self.model.get(&name)),
            5 => {
                let count = self.model.len();
                let killed = globals.kill(&key).unwrap();
                self.model.retain(|other, _| !begins_with(other, &name));
                assert_eq!(killed, (count - self.model.len()) as u64);
            }
            6 => {
                let by = random.below(20) as i64 - 10;
                let old = self.model.get(&name).map_or(&[][..], |value| value);
                let sum = Number::of_value(old).unwrap().plus(by.into()).unwrap();
                assert_eq!(globals.increment(&key, by).unwrap(), sum);
                self.model.insert(name, sum.to_string().into_bytes());
            }
            7 => self.batch(globals),
            8 => self.orders(globals, &name),
            9 => {
                let after = self.model.iter().find(|(other, _)| **other > name);
                let before = self.model.iter().rev().find(|(other, _)| **other < name);
                let node = |found: Option<(&Name, &Vec<u8>)>| {
                    let (name, value) = found.filter(|(other, _)| other.0 == name.0)?;
                    Some((key_of(name), value.clone()))
                };
                assert_eq!(globals.query(&key).unwrap(), node(after));
                assert_eq!(globals.query_back(&key).unwrap(), node(before));
            }
            10 => self.merge(globals, &name),
            11 => self.scan(globals, &name),
            12 => {
                let to = key_of(&random_name(random));
                let range = ancile::KeyRange {
                    start: key.as_bytes().to_vec(),
                    end: to.as_bytes().to_vec(),
                };
                let mut found = Vec::new();
                let scan = globals.scan_range(&range, |key, value| {
                    found.push((key.to_key().unwrap(), value.to_vec()));
                    ControlFlow::Continue(())
                });
                scan.unwrap();
                let all = self
                    .model
                    .iter()
                    .map(|(name, value)| (key_of(name), value.clone()));
                let wanted: Vec<_> = all
                    .filter(|(key, _)| range.contains(key.as_bytes()))
                    .collect();
                assert_eq!(found, wanted);
            }
            _ => {
                let has_value = self.model.contains_key(&name);
                let mut below = self.model.keys().filter(|other| begins_with(other, &name));
                let has_descendants = below.any(|other| *other != name);
                let data = Data {
                    has_value,
                    has_descendants,
                };
                assert_eq!(globals.data(&key).unwrap(), data);
            }
        }
    }

    fn batch<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>) {
        let random = &mut self.random;
        let names: Vec<Name> = (0..random.below(40)).map(|_| random_name(random)).collect();
        let mut entries = GlobalEntries::new();
        for name in &names {
            let value = value_of(random);
            entries.push_key(&key_of(name), &value);
            self.model.insert(name.clone(), value);
        }
        globals.set_batch(&entries).unwrap();
        let asked: Vec<Name> = (0..random.below(40))
            .map(|_| random_name(random))
            .chain(names)
            .collect();
        let keys: Vec<GlobalKey> = asked.iter().map(key_of).collect();
        let values = globals.get_batch(&keys).unwrap();
        for (name, value) in asked.iter().zip(&values) {
            assert_eq!(value.as_ref(), self.model.get(name));
        }
        let mut sums = vec![Number::ZERO; keys.len()];
        globals
            .increment_batch(&keys, 3, |at, sum| sums[at] = sum)
            .unwrap();
        for (name, sum) in asked.into_iter().zip(sums) {
            let old = self.model.get(&name).map_or(&[][..], |value| value);
            let wanted = Number::of_value(old).unwrap().plus(3.into()).unwrap();
            assert_eq!(sum, wanted);
            self.model.insert(name, sum.to_string().into_bytes());
        }
    }

    fn orders<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>, name: &Name) {
        let key = key_of(name);
        let level_of = match name.1.split_last() {
            None => names(self.model),
            Some((_, above)) => level(self.model, &(name.0.clone(), above.to_vec())),
        };
        let next = level_of.iter().find(|other| *other > name).map(key_of);
        let previous = level_of
            .iter()
            .rev()
            .find(|other| *other < name)
            .map(key_of);
        assert_eq!(globals.next(&key).unwrap(), next);
        assert_eq!(globals.previous(&key).unwrap(), previous);
        let below = level(self.model, name);
        assert_eq!(globals.first(&key).unwrap(), below.first().map(key_of));
        assert_eq!(globals.last(&key).unwrap(), below.last().map(key_of));
    }

    fn merge<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>, from: &Name) {
        let to = random_name(&mut self.random);
        let copied = globals.merge(&key_of(from), &key_of(&to));
        if *from != to && (begins_with(from, &to) || begins_with(&to, from)) {
            assert_eq!(copied, Err(Error::MergeOverlap));
            return;
        }
        let nodes: Vec<(Name, Vec<u8>)> = self
            .model
            .iter()
            .filter(|(name, _)| *from != to && begins_with(name, from))
            .map(|(name, value)| {
                let rest = &name.1[from.1.len()..];
                let parts = to.1.iter().chain(rest).cloned().collect();
                ((to.0.clone(), parts), value.clone())
            })
            .collect();
        assert_eq!(copied, Ok(nodes.len() as u64));
        self.model.extend(nodes);
    }

    fn scan<S: Verbs>(&mut self, globals: &mut GlobalVerbs<'_, S>, name: &Name) {
        let key = key_of(name);
        let below = self
            .model
            .iter()
            .filter(|(other, _)| begins_with(other, name));
        let mut wanted: Vec<_> = below
            .map(|(name, value)| (key_of(name), value.clone()))
            .collect();
        assert_eq!(globals.count(&key).unwrap(), wanted.len() as u64);
        let mut found = Vec::new();
        globals
            .scan(&key, |key, value| {
                found.push((key.to_key().unwrap(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(found, wanted);
        let most = self.random.below(5) as usize;
        wanted.reverse();
        wanted.truncate(most + 1);
        found.clear();
        globals
            .scan_back(&key, |key, value| {
                found.push((key.to_key().unwrap(), value.to_vec()));
                if found.len() > most {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        assert_eq!(found, wanted);
    }
}

fn run(engine: &Engine, globals: &Globals, model: &mut Model, seed: u64, steps: usize) {
    println!(
        "seed {seed}, {:?}, {} shards",
        globals.routing(),
        engine.shards()
    );
    let mut session = engine.session().unwrap();
    let mut verbs = session.globals(globals);
    let random = Random::of(seed);
    let mut case = Case { random, model };
    for _ in 0..steps {
        case.step(&mut verbs);
    }
    assert_eq!(verbs.len().unwrap(), model.len() as u64);
}

const ROUTINGS: [Routing; 4] = [
    Routing::NameAndFirst,
    Routing::Prefix(0),
    Routing::Prefix(2),
    Routing::FullKey,
];

#[test]
fn every_verb_does_what_an_ordered_map_does_on_any_shards_by_any_routing() {
    for shards in 1..=5 {
        let engine = Engine::builder()
            .shards(shards)
            .arena_bytes(64 << 20)
            .build()
            .unwrap();
        for (number, routing) in ROUTINGS.into_iter().enumerate() {
            let globals = engine
                .create_globals(&format!("{number}"), routing)
                .unwrap();
            let seed = (shards * 10 + number) as u64;
            run(&engine, &globals, &mut Model::new(), seed, 400);
        }
        engine.close().unwrap();
    }
}

#[test]
fn globals_in_files_are_there_again_with_every_node() {
    for shards in [1, 3] {
        let place = Place::new("globals");
        let mut models = vec![Model::new(); ROUTINGS.len()];
        for round in 0..3 {
            let engine = Engine::builder()
                .shards(shards)
                .arena_bytes(64 << 20)
                .open(place.path())
                .unwrap();
            for (number, model) in models.iter_mut().enumerate() {
                let (name, routing) = (format!("{number}"), ROUTINGS[number]);
                let globals = match round {
                    0 => engine.create_globals(&name, routing).unwrap(),
                    _ => engine.open_globals(&name).unwrap(),
                };
                assert_eq!(globals.routing(), routing);
                run(&engine, &globals, model, round + 7, 200);
            }
            engine.close().unwrap();
        }
    }
}

#[test]
fn a_resident_does_what_a_session_does() {
    let engine = engine(2);
    let globals = engine.create_globals("g", Routing::FullKey).unwrap();
    let done = engine.spawn(1, move |resident| {
        let mut model = Model::new();
        let mut case = Case {
            random: Random::of(77),
            model: &mut model,
        };
        let mut verbs = resident.globals(&globals);
        (0..400).for_each(|_| case.step(&mut verbs));
    });
    done.unwrap().join().unwrap();
}

#[test]
fn a_shards_own_globals_are_used_without_a_hop_and_others_keys_refused() {
    let engine = engine(2);
    let globals = engine.create_globals("g", Routing::FullKey).unwrap();
    let handle = globals.clone();
    let counts = engine.on_every_shard(move |resident| {
        let shard = resident.shard();
        let mut own = resident.own_globals(&handle).unwrap();
        let (mut entries, mut keys) = (GlobalEntries::new(), GlobalKeys::new());
        let step = key!["step"].unwrap();
        for n in 0..1000 {
            let key = step.child(n).unwrap();
            match own.set(&key, n.to_string()) {
                Ok(replaced) => {
                    assert!(!replaced);
                    entries.push_child(&step, n, "new").unwrap();
                    keys.push_key(&key);
                }
                Err(error) => assert!(matches!(error, Error::OtherShardsKey { .. }), "{error}"),
            }
        }
        own.set_batch(&entries).unwrap();
        let mut seen = 0;
        own.get_each(&keys, |_, value| seen += usize::from(value == Some(b"new")))
            .unwrap();
        assert_eq!(seen, keys.len());
        own.increment_batch(&keys, 2, |_, sum| assert_eq!(sum, 2.into()))
            .unwrap();
        let mut found = 0;
        let mut next = own.first(&step).unwrap();
        while let Some(key) = next {
            assert_eq!(
                own.get(&key).unwrap().as_deref(),
                Some(&b"2"[..]),
                "in shard {shard}"
            );
            next = own.next(&key).unwrap();
            found += 1;
        }
        assert_eq!(found, keys.len());
        found
    });
    assert_eq!(counts.unwrap().iter().sum::<usize>(), 1000);
    let mut session = engine.session().unwrap();
    assert_eq!(
        session.globals(&globals).kill(&key!["step"].unwrap()),
        Ok(1000)
    );
}

#[test]
fn limits_are_refused_before_anything_is_written() {
    let engine = engine(2);
    let globals = engine.globals().unwrap();
    let mut session = engine.session().unwrap();
    let mut verbs = session.globals(&globals);
    let long = vec![0; (16 << 20) + 1];
    let entries = [
        (key!["a", 1].unwrap(), &b"1"[..]),
        (key!["a", 2].unwrap(), &long[..]),
    ];
    let too_long = Err(Error::ValueTooLong { bytes: long.len() });
    assert_eq!(verbs.set_batch(&entries), too_long);
    assert_eq!(verbs.set(&entries[1].0, &long).map(drop), too_long);
    // A merge of which one key would be too long.
    let deep = key!["a", "b".repeat(1500)].unwrap();
    verbs.set(&key!["a", "b"].unwrap(), "1").unwrap();
    verbs.set(&deep, "1").unwrap();
    let merged = verbs.merge(&key!["a"].unwrap(), &key!["c", "d".repeat(600)].unwrap());
    assert!(matches!(merged, Err(Error::Key(_))), "{merged:?}");
    assert_eq!(verbs.len(), Ok(2));
    // A sum that is too large.
    let large = key!["n"].unwrap();
    verbs.set(&large, "9E46").unwrap();
    assert!(matches!(
        verbs.increment(&large, Number::parse("9E46").unwrap()),
        Err(Error::Key(_))
    ));
    assert_eq!(verbs.get_text(&large).unwrap().as_deref(), Some("9E46"));
}

#[test]
fn a_set_that_was_dropped_is_gone_for_its_handle_also_when_there_is_another_of_its_name() {
    let engine = engine(2);
    let globals = engine.globals().unwrap();
    let used = engine.used_bytes().unwrap();
    let mut session = engine.session().unwrap();
    let mut verbs = session.globals(&globals);
    for n in 0..20_000 {
        verbs.set(&key!["n", n].unwrap(), "some value").unwrap();
    }
    assert!(matches!(
        engine.create_globals("globals", Routing::FullKey),
        Err(TableError::Exists(_))
    ));
    assert!(engine.open_table::<[u64; 1]>("globals").is_err());
    engine.drop_table("globals").unwrap();
    let again = engine.globals().unwrap();
    assert_eq!(engine.used_bytes().unwrap(), used);
    let mut session = engine.session().unwrap();
    assert_eq!(
        session.globals(&globals).get(&key!["n", 1].unwrap()),
        Err(Error::TableGone)
    );
    assert_eq!(session.globals(&again).len(), Ok(0));
    assert_eq!(engine.tables().len(), 1);
}

#[test]
fn subscripts_of_a_scan_are_told_as_they_were_given() {
    let engine = engine(2);
    let globals = engine.globals().unwrap();
    let mut session = engine.session().unwrap();
    let mut verbs = session.globals(&globals);
    let name = key!["n", 1.to_string(), "", "x\0y"].unwrap();
    verbs.set(&name, "v").unwrap();
    let mut seen = Vec::new();
    verbs
        .scan(&key!["n"].unwrap(), |key, _| {
            seen.extend(key.subscripts().map(Subscript::into_owned));
            assert_eq!(key.name().as_ref(), b"n");
            assert_eq!(key.last(), Some("x\0y".into()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen, ["1".into(), Subscript::Empty, "x\0y".into()]);
}
