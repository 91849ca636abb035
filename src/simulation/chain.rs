//! Transactions of many clients over some shards, for many seeds: the checker finds nothing.
//!
//! A seed decides everything: how many shards, clients and rows there are, how slow messages are, how
//! small rings are, what the clients do, when each goes on, stands still, or breaks off. To run one
//! again: `scripts/simulate 1 SEED`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Instant;

use super::check::check;
use super::futures;
use super::history::{Book, Cells, Draft, Fate, Kind, row_of};
use super::scripts::{Counts, Focus, Key, Mix, Rows, Scene, act, name_of};
use super::strand::{Strands, Turns};
use super::{Choices, Setting, World};
use crate::id::SurrogateId;
use crate::session::Verbs;
use crate::shard::panic_message;
use crate::table::watch::{self, RowName};
use crate::table::{Dynamic, Schema};

/// Seeds of one run of the test, unless the environment says otherwise.
const SEEDS: u64 = 400;

/// Keys of the second table begin here.
const SECOND_KEYS: u64 = 1_000;

/// Runs one seed; what happened in it, or what is wrong.
pub(super) fn run_seed(seed: u64, focus: Option<Focus>) -> Result<Counts, String> {
    let run = AssertUnwindSafe(|| {
        let choices = Choices::new(seed);
        let chosen = [Focus::Any, Focus::Any, Focus::Readers, Focus::Writers];
        let focus = focus.unwrap_or(chosen[choices.below(4) as usize]);
        let mut setting = Setting::chosen(&choices);
        if focus != Focus::Any {
            setting.shards = setting.shards.clamp(2, 3);
            (setting.delay_max, setting.relay_delay_max) = (0, 40);
        }
        let world = World::new(seed, setting);
        watch::begin();
        watch::act_for(0);
        let scene = Rc::new(scene(&world, focus));
        furnish(&scene);
        let mut strands = Strands::new(&world);
        let few = if focus == Focus::Any { 1 } else { 4 };
        for _ in 0..few + world.choices.below(9 - few) {
            let rounds = few + world.choices.below(8);
            let where_to = world.choices.below(6);
            let scene = Rc::clone(&scene);
            strands.add(where_to != 0, move |turns| match where_to {
                0 => live_inside(&scene, turns, rounds),
                1 => futures::live(&scene, turns, rounds),
                _ => live(&scene, turns, rounds),
            });
        }
        strands.run(|world| assert!(world.is_idle(), "intents stand, and nobody is there"));
        let mut counts = scene.counts.get();
        counts.stalls = strands.stalls;
        let events = watch::end();
        let rows = check(&scene.book.nodes.borrow(), &events)?;
        check_rows(&scene, &rows)?;
        Ok(counts)
    });
    catch_unwind(run).unwrap_or_else(|panic| Err(panic_message(panic)))
}

pub(super) fn scene(world: &Rc<World>, focus: Focus) -> Scene {
    let choices = &world.choices;
    let schema = Schema::cells(3).keyed();
    let (one, two): (Rows, Rows) = (world.table("one", &schema), world.table("two", &schema));
    // Few rows for many clients, or more.
    let keys_max = [2, 3, 5][choices.below(3) as usize];
    let ones = (0..1 + choices.below(keys_max)).map(|key| (one.clone(), key));
    let twos = (0..1 + choices.below(keys_max)).map(|key| (two.clone(), SECOND_KEYS + key));
    let keys = ones.chain(twos).map(|(table, key)| Key {
        table,
        key: SurrogateId(key),
    });
    Scene {
        world: Rc::clone(world),
        book: Book::default(),
        keys: keys.collect(),
        plain: world.table("plain", &Schema::cells(3)),
        places: RefCell::default(),
        keyed_places: RefCell::default(),
        mix: match focus {
            Focus::Readers => Mix::Serializable,
            _ => [Mix::Serializable, Mix::ReadCommitted, Mix::Both][choices.below(3) as usize],
        },
        focus,
        steps_max: 1 + choices.below(5),
        counts: Cell::default(),
    }
}

/// Puts some rows there.
pub(super) fn furnish(scene: &Scene) {
    let mut client = scene.world.client();
    let begin = |row: &mut dyn FnMut(u64) -> RowName| {
        let value = scene.book.new_value();
        let node = scene.book.begin(Kind::Atomic);
        let mut draft = Draft::new(Kind::Atomic);
        draft.made(row(value), false, Some(value), true);
        scene.book.note(node, &draft, Fate::Committed);
    };
    for key in &scene.keys {
        if scene.world.choices.below(3) > 0 {
            begin(&mut |value| {
                let id = client.insert_keyed(&key.table, key.key, &row_of(value));
                scene
                    .keyed_places
                    .borrow_mut()
                    .push((key.clone(), id.unwrap()));
                key.name()
            });
        }
    }
    for _ in 0..scene.world.choices.below(3) {
        begin(&mut |value| {
            let id = client.insert(&scene.plain, &row_of(value)).unwrap();
            scene.places.borrow_mut().push(id);
            name_of(id)
        });
    }
}

/// The life of a client outside of all shards.
pub(super) fn live(scene: &Scene, turns: &Turns<'_>, rounds: u64) {
    let mut client = turns.client();
    let _ = (0..rounds).all(|_| act(scene, turns, &mut client));
}

/// The life of a resident.
pub(super) fn live_inside(scene: &Scene, turns: &Turns<'_>, rounds: u64) {
    let shard = scene.world.choices.below(scene.world.peers.shards() as u64);
    turns.inside(shard as usize, |insider| {
        let _ = (0..rounds).all(|_| act(scene, turns, insider));
    });
}

/// Whether the tables are as the changes have left them, with no slot lost and every key found.
pub(super) fn check_rows(scene: &Scene, expected: &BTreeMap<RowName, Cells>) -> Result<(), String> {
    let mut found = BTreeMap::new();
    let tables = [
        &scene.keys[0].table,
        &scene.keys[scene.keys.len() - 1].table,
        &scene.plain,
    ];
    for table in tables {
        for seat in &scene.world.shards {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            let (part, _) = catalog.table(table.key()).unwrap();
            part.audit()?;
            for place in part.scan(0..u32::MAX) {
                let row = if part.is_keyed() {
                    RowName {
                        is_keyed: true,
                        number: part.number(place),
                    }
                } else {
                    name_of(part.id(place))
                };
                let cells = part.cells(Dynamic(3), place);
                found.insert(row, Cells::try_from(cells).unwrap());
            }
        }
    }
    if found == *expected {
        Ok(())
    } else {
        Err(format!("{found:?} is there instead of {expected:?}"))
    }
}

pub(super) fn setting(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}")),
        Err(_) => otherwise,
    }
}

#[test]
fn transactions_keep_their_promises_whatever_happens() {
    let seeds = setting("ANCILE_SEEDS", SEEDS);
    let from = setting("ANCILE_SEED_FROM", 0);
    let is_watched = std::io::stderr().is_terminal();
    let start = Instant::now();
    let mut counts = Counts::default();
    for seed in from..from + seeds {
        match run_seed(seed, None) {
            Ok(more) => counts += more,
            Err(failure) => panic!("seed {seed} (scripts/simulate 1 {seed}): {failure}"),
        }
        let done = seed - from + 1;
        if is_watched && done.is_multiple_of(100) {
            let _ = write!(std::io::stderr(), "\r{done} of {seeds} seeds ");
        }
    }
    let rate = seeds as f64 / start.elapsed().as_secs_f64();
    println!("{seeds} seeds from {from}, {rate:.0} a second: {counts}");
}
