//! Every moment of short histories of globals: at each, what the files hold is opened beside the running
//! world, and must be the state before the step under way or the one after it, of every transaction
//! whole; the trees are sound, and no page is lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Files;
use super::expected::every_moment;
use crate::arena::mutant::{CURRENT, Mutant};
use crate::collation::{GlobalKey, Number};
use crate::error::{Error, Faults};
use crate::session::{Isolation, TransactionOptions, Verbs};
use crate::simulation::chain::setting;
use crate::simulation::mutants::quietly;
use crate::simulation::{Choices, Client, Setting, World};
use crate::table::{Direction, Globals, Routing, Span};

/// Histories of one run of the test, unless the environment says otherwise.
const SEEDS: u64 = 24;

/// Steps of a history.
const STEPS: u64 = 10;

/// Seeds within which a fault must be noticed.
const MUTANT_SEEDS: u64 = 60;

type Nodes = BTreeMap<Vec<u8>, Vec<u8>>;
type Expected = super::expected::Expected<Vec<u8>, Vec<u8>>;

/// What a step does to one node.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// Values to be set, and subtrees to be removed, in turn.
type Plan = Vec<(GlobalKey, Option<Vec<u8>>)>;

/// The nodes of a world, whose trees are looked at.
fn nodes_of(world: &World) -> Result<Nodes, String> {
    let mut nodes = Nodes::new();
    for shape in &*world.tables.borrow() {
        for seat in &world.shards {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            let (part, arena) = catalog
                .globals(shape.key)
                .map_err(|error| error.to_string())?;
            let mut faults = Faults::default();
            part.check(arena, world.shards.len(), &mut faults);
            if let Some(fault) = faults.first() {
                return Err(fault);
            }
            let span = Span {
                start: &[],
                end: None,
            };
            let visit = |key: &[u8], value: &[u8]| {
                nodes.insert(key.to_vec(), value.to_vec());
                std::ops::ControlFlow::Continue(())
            };
            part.scan(arena, span, Direction::Forward, visit)
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(nodes)
}

/// A history under way.
struct History {
    world: Rc<World>,
    client: Client<'static>,
    globals: Globals,
    expected: Rc<RefCell<Expected>>,
}

impl History {
    fn below(&self, bound: u64) -> u64 {
        self.world.choices.below(bound)
    }

    fn key(&self) -> GlobalKey {
        let mut key = GlobalKey::new("n").unwrap();
        for _ in 0..self.below(4) {
            key.push(self.below(4)).unwrap();
        }
        key
    }

    fn value(&self) -> Vec<u8> {
        let length = [1, 8, 40, 700, 5_000][self.below(5) as usize];
        vec![b'0' + self.below(10) as u8; length]
    }

    /// Says what the step at hand may change.
    fn expect(&self, name: &str, groups: Vec<Vec<Change>>) {
        self.expected.borrow_mut().begin(name, groups);
    }

    /// The step has done all of it.
    fn done(&self) {
        self.expected.borrow_mut().done();
    }

    /// What removing a subtree changes, of some nodes.
    fn killed(nodes: &mut Nodes, key: &GlobalKey) {
        let range = key.subtree();
        nodes.retain(|other, _| !range.contains(other));
    }

    /// What makes one state of another.
    fn changes(&self, after: &Nodes) -> Vec<Change> {
        let before = &self.expected.borrow().present;
        let set = after
            .iter()
            .filter(|(key, value)| before.get(*key) != Some(value));
        let mut changes: Vec<Change> = set
            .map(|(key, value)| (key.clone(), Some(value.clone())))
            .collect();
        let gone = before.keys().filter(|key| !after.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), None)));
        changes
    }

    fn step(&mut self) {
        match self.below(8) {
            0 => self.single(),
            1 => self.kill(),
            2 => self.batch(),
            3 | 4 => self.closure(),
            _ => self.transaction(),
        }
    }

    fn single(&mut self) {
        let (key, value) = (self.key(), self.value());
        self.expect(
            "set",
            vec![vec![(key.as_bytes().to_vec(), Some(value.clone()))]],
        );
        self.client.globals(&self.globals).set(&key, value).unwrap();
        self.done();
    }

    fn kill(&mut self) {
        let key = self.key();
        let mut after = self.expected.borrow().present.clone();
        Self::killed(&mut after, &key);
        let shards = self.world.peers.shards();
        let mut groups = vec![Vec::new(); shards];
        for change in self.changes(&after) {
            let shard = self.globals.routing().shard_of(&change.0, shards);
            groups[shard].push(change);
        }
        self.expect("kill", groups);
        self.client.globals(&self.globals).kill(&key).unwrap();
        self.done();
    }

    fn batch(&mut self) {
        let mut entries = BTreeMap::new();
        for _ in 0..1 + self.below(30) {
            entries.insert(self.key(), self.value());
        }
        let group = |(key, value): (&GlobalKey, &Vec<u8>)| {
            vec![(key.as_bytes().to_vec(), Some(value.clone()))]
        };
        self.expect("batch", entries.iter().map(group).collect());
        let entries: Vec<(GlobalKey, Vec<u8>)> = entries.into_iter().collect();
        self.client
            .globals(&self.globals)
            .set_batch(&entries)
            .unwrap();
        self.done();
    }

    /// A plan of changes, and what it makes of the nodes.
    fn plan(&self, own: impl Fn(&GlobalKey) -> bool) -> (Plan, Nodes) {
        let mut after = self.expected.borrow().present.clone();
        let mut plan = Vec::new();
        for _ in 0..1 + self.below(12) {
            let key = self.key();
            if !own(&key) {
                continue;
            }
            if self.below(4) == 0 {
                Self::killed(&mut after, &key);
                plan.push((key, None));
            } else {
                let value = self.value();
                after.insert(key.as_bytes().to_vec(), value.clone());
                plan.push((key, Some(value)));
            }
        }
        (plan, after)
    }

    /// A closure in one shard: all of it, or nothing after an error or a panic.
    fn closure(&mut self) {
        let shards = self.world.peers.shards();
        let shard = self.below(shards as u64) as usize;
        let routing = self.globals.routing();
        let is_own = |key: &[u8]| routing.shard_of(key, shards) == shard;
        let (plan, mut after) = self.plan(|key| is_own(key.as_bytes()));
        // A subtree goes only where the closure runs.
        for (key, value) in &self.expected.borrow().present {
            if !is_own(key) {
                after.insert(key.clone(), value.clone());
            }
        }
        let end = self.below(4);
        let groups = match end {
            0 | 1 => vec![self.changes(&after)],
            _ => Vec::new(),
        };
        self.expect("closure", groups);
        let globals = self.globals.clone();
        let result = self.client.on(shard, |context| {
            let mut own = context.globals(&globals)?;
            for (key, value) in &plan {
                match value {
                    Some(value) => drop(own.set(key, value)?),
                    None => drop(own.kill(key)?),
                }
            }
            match end {
                2 => Err(Error::NotKeyed),
                3 => std::panic::resume_unwind(Box::new("as planned")),
                _ => Ok(()),
            }
        });
        assert_eq!(result.is_ok(), end < 2);
        self.done();
    }

    fn transaction(&mut self) {
        let (plan, mut after) = self.plan(|_| true);
        let counter = GlobalKey::new("count").unwrap();
        let name = counter.as_bytes().to_vec();
        let old = after.get(&name).map_or(&[][..], |value| value);
        let sum = Number::of_value(old).unwrap().plus(1.into()).unwrap();
        after.insert(name, sum.to_string().into_bytes());
        self.expect("transaction", vec![self.changes(&after)]);
        let isolation = match self.below(2) {
            0 => Isolation::Serializable,
            _ => Isolation::ReadCommitted,
        };
        let globals = self.globals.clone();
        let done =
            self.client
                .transaction_with(TransactionOptions::new(isolation), |transaction| {
                    let mut nodes = transaction.globals(&globals);
                    for (key, value) in &plan {
                        match value {
                            Some(value) => nodes.set(key, value)?,
                            None => nodes.kill(key)?,
                        }
                    }
                    nodes.increment(&counter, 1)
                });
        assert_eq!(done, Ok(sum));
        self.done();
    }
}

/// Looks at every moment of one history; how many there were, or what is wrong.
fn run_seed(seed: u64) -> Result<u64, String> {
    let choices = Choices::new(seed);
    let setting = Setting {
        shards: 1 + choices.below(3) as usize,
        lane_requests: 4,
        block_operations: 3,
        delay_max: 0,
        relay_delay_max: 0,
    };
    let routing = [Routing::FullKey, Routing::NameAndFirst][choices.below(2) as usize];
    let files = Rc::new(Files::new(setting.shards));
    let world = files.create(seed, setting);
    let mut history = History {
        client: world.client(),
        globals: world.globals("g", routing),
        world: Rc::clone(&world),
        expected: Rc::default(),
    };
    let expected = Rc::clone(&history.expected);
    every_moment(&files, (&world, setting), &expected, nodes_of, || {
        for _ in 0..STEPS {
            history.step();
            if history.expected.borrow().has_failed() {
                break;
            }
        }
    })
}

#[test]
fn every_moment_of_short_histories_of_globals_leaves_each_transaction_whole() {
    let seeds = setting("ANCILE_SEEDS", SEEDS);
    let from = setting("ANCILE_SEED_FROM", 0);
    let mut moments = 0;
    for seed in from..from + seeds {
        match run_seed(seed) {
            Ok(points) => moments += points,
            Err(failure) => panic!("seed {seed}: {failure}"),
        }
    }
    println!("{seeds} histories from {from}: {moments} moments");
    assert!(moments > 100 * seeds);
}

#[test]
fn faults_in_what_keeps_globals_whole_are_noticed() {
    for mutant in [
        Mutant::UndoUnkept,
        Mutant::UndoForwards,
        Mutant::PartsUnprepared,
        Mutant::DecisionUnnoted,
    ] {
        CURRENT.set(Some(mutant));
        let found =
            quietly(|| (0..MUTANT_SEEDS).find_map(|seed| Some((seed, run_seed(seed).err()?))));
        CURRENT.set(None);
        let (seed, failure) = found.unwrap_or_else(|| panic!("{mutant:?} is not noticed"));
        println!("{mutant:?}: seed {seed}: {failure}");
    }
}
