//! What is whole of globals in files whose bytes were changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ancile::{Engine, GlobalKey, Routing, Salvage, Verbs, key};

use super::value_of;
use crate::edges::database::{Place, settings};
use crate::edges::dump::{ancile, done, name};
use crate::edges::support::{Random, watchdog};

type Node = (GlobalKey, Vec<u8>);
type Model = BTreeMap<GlobalKey, Vec<u8>>;

const PAGE: usize = 4096;

/// Where the memory of tables begins in a shard's file.
const EXTENTS: usize = 2 << 20;

/// A set of globals whose values tell whose they are.
fn fill(engine: &Engine, random: &mut Random) -> Model {
    let store = engine.create_globals("g", Routing::FullKey).unwrap();
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    for _ in 0..6_000 {
        let key = key!["node", random.below(50), random.below(1 << 30)].unwrap();
        let value = [key.as_bytes(), &value_of(random)].concat();
        session.globals(&store).set(&key, &value).unwrap();
        model.insert(key, value);
    }
    // So that there are pages that were in use once.
    let gone: Vec<GlobalKey> = model.keys().step_by(3).cloned().collect();
    for key in gone {
        session.globals(&store).kill(&key).unwrap();
        model.remove(&key);
    }
    model
}

/// The nodes that are saved, and what is told of the others.
fn saved(path: &Path) -> (Vec<Node>, Vec<(String, u64)>) {
    let mut salvage = Salvage::open(path).unwrap();
    let mut nodes = Vec::new();
    let count = salvage.nodes("g", |key, value| {
        nodes.push((key.to_key().unwrap(), value.to_vec()));
    });
    let count = count.unwrap();
    assert_eq!(count.rows, nodes.len() as u64);
    (nodes, count.left_out)
}

/// A copy of a database in which bytes were changed at random places of a part of its pages.
fn damaged(whole: &Path, copy: &Path, (flips, within): (u64, u64), random: &mut Random) {
    fs::create_dir_all(copy).unwrap();
    for file in fs::read_dir(whole).unwrap() {
        let file = file.unwrap();
        let mut bytes = fs::read(file.path()).unwrap();
        let is_arena = bytes.len() > EXTENTS;
        for _ in 0..if is_arena { flips } else { 0 } {
            let pages = (bytes.len() - EXTENTS) / PAGE;
            let page = random.below(pages as u64) as usize;
            let at = EXTENTS + page * PAGE + random.below(within) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        fs::write(copy.join(file.file_name()), bytes).unwrap();
    }
}

#[test]
fn globals_that_are_whole_are_saved_whole_and_go_through_the_command() {
    let (place, new) = (Place::new("globals-whole"), Place::new("globals-saved"));
    let engine = settings().shards(2).open(place.path()).unwrap();
    let model = fill(&engine, &mut Random::seeded());
    engine.close().unwrap();
    let (nodes, left) = saved(place.path());
    assert_eq!(left, []);
    assert_eq!(nodes.len(), model.len());
    assert!(nodes.into_iter().collect::<Model>() == model);
    let Some(output) = ancile(&["salvage", name(place.path())], "") else {
        return;
    };
    assert_eq!(output.status.code(), Some(0));
    let dump = String::from_utf8(output.stdout).unwrap();
    let load = ["load", name(new.path()), "--shards", "1"];
    let load = [&load[..], &["--arena-bytes", "67108864"]].concat();
    done(&load, &dump).unwrap();
    let dumps = [&place, &new].map(|place| done(&["dump", name(place.path())], "").unwrap());
    assert!(dumps[0] == dumps[1]);
}

#[test]
fn what_is_saved_of_damaged_globals_was_there_and_what_is_not_is_told() {
    let _watchdog = watchdog(600);
    let place = Place::new("globals-flipped");
    let whole = place.path().join("whole");
    fs::create_dir_all(&whole).unwrap();
    let random = &mut Random::seeded();
    let engine = settings().shards(2).open(&whole).unwrap();
    let model = fill(&engine, random);
    engine.close().unwrap();
    let (mut most, mut losses) = (0, 0);
    for round in 0..60_u64 {
        let copy = place.path().join(format!("{round}"));
        let flips = 1 + random.below(60);
        let within = [32, 200, PAGE as u64][random.below(3) as usize];
        damaged(&whole, &copy, (flips, within), random);
        let (nodes, left) = saved(&copy);
        let keys = nodes.len();
        let nodes: Model = nodes.into_iter().collect();
        assert_eq!(nodes.len(), keys, "a key twice");
        // A byte of a value, or of a key's end, can be another one and tell nobody. So can what all keys of the
        // first page begin with, or of the last one, if they are behind no other's then.
        let ends = model.first_key_value().unwrap().0..=model.last_key_value().unwrap().0;
        let others = nodes
            .iter()
            .filter(|(key, value)| ends.contains(key) && model.get(*key) != Some(value));
        assert!(others.count() as u64 <= 2 * flips, "{flips} bytes changed");
        let lost = model.len().saturating_sub(nodes.len());
        assert!(
            lost == 0 || !left.is_empty(),
            "{lost} nodes are lost untold"
        );
        losses += usize::from(lost > 0);
        most = most.max(nodes.len());
        // Each damaged page has its own nodes alone, if it is not the list of others.
        assert!(within < 100 || lost < model.len(), "{left:?}");
        fs::remove_dir_all(&copy).unwrap();
    }
    println!(
        "{losses} of 60 with losses; {most} of {} nodes at most",
        model.len()
    );
    assert!(losses > 10 && most > model.len() * 9 / 10);
}
