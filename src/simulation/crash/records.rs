//! Every moment of short histories of records with texts and indexes of all kinds: at each, what the files
//! hold is opened beside the running world, and must be the state before the step under way or the one
//! after it, of every transaction whole; and every index has the records that are there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Files;
use super::expected::every_moment;
use crate::arena::mutant::{CURRENT, Mutant};
use crate::error::{Error, Faults};
use crate::session::{Isolation, TransactionOptions, Verbs};
use crate::simulation::chain::setting;
use crate::simulation::mutants::quietly;
use crate::simulation::{Choices, Client, Setting, World};
use crate::table::{Codec, FieldKind, RecordSchema, Records, Shape, Value};

/// Histories of one run of the test, unless the environment says otherwise.
const SEEDS: u64 = 16;

/// Steps of a history.
const STEPS: u64 = 10;

/// Seeds within which a fault must be noticed.
const MUTANT_SEEDS: u64 = 60;

/// Keys, and numbers, that steps choose from.
const KEYS: u64 = 10;
const NUMBERS: u64 = 14;

type Person = Vec<Value>;
/// Whether it is of the table with a unique index, and its key.
type Name = (bool, u64);
type People = BTreeMap<Name, Person>;
type Expected = super::expected::Expected<Name, Person>;
type Change = (Name, Option<Person>);

fn schema(is_unique: bool) -> RecordSchema {
    let schema = RecordSchema::new()
        .field("key", FieldKind::U64)
        .optional("number", FieldKind::Text)
        .field("address", FieldKind::Text)
        .field("place", FieldKind::U64)
        .key(&["key"])
        .hash_index("address", &["address"])
        .ordered_index("placed", &["place", "address"]);
    if is_unique {
        schema.unique_index("number", &["number"])
    } else {
        schema
    }
}

/// The tables of a world, in the order in which they were made.
const ENTRIES: usize = 0;
const UNIQUE: usize = 1;

/// The records of a world, whose parts are looked at.
fn people_of(world: &World) -> Result<People, String> {
    let (mut people, mut entries) = (People::new(), Vec::new());
    for (number, shape) in world.tables.borrow().iter().enumerate() {
        for (index, seat) in world.shards.iter().enumerate() {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            let records = catalog.records(shape.key);
            let (part, arena) = records.map_err(|error| error.to_string())?;
            let mut faults = Faults::default();
            part.check(arena, index, world.shards.len(), &mut faults);
            if let Some(fault) = faults.first() {
                return Err(fault);
            }
            let shape: Shape = part.shape().clone();
            let codec = Codec::<Person>::new(&shape);
            for place in part.scan(0..u32::MAX) {
                let person = codec.load(part.values(arena, place));
                let person = person.map_err(|error| error.to_string())?;
                match (number, &person[0]) {
                    (ENTRIES, _) => entries.push(person),
                    (_, Value::U64(key)) => drop(people.insert((number == UNIQUE, *key), person)),
                    (_, other) => return Err(format!("{other:?} is no key")),
                }
            }
        }
    }
    let with_number = |person: &&Person| person[1] != Value::Nothing;
    let unique = people.range((true, 0)..).map(|(_, person)| person);
    let unique: Vec<&Person> = unique.filter(with_number).collect();
    let is_there = |person: &&Person| entries.contains(&vec![person[1].clone(), person[0].clone()]);
    if unique.len() != entries.len() || !unique.iter().all(is_there) {
        let (entries, people) = (entries.len(), unique.len());
        return Err(format!(
            "the unique index has {entries} entries, and there are {people} people"
        ));
    }
    Ok(people)
}

/// A history under way.
struct History {
    world: Rc<World>,
    client: Client<'static>,
    unique: Records<Person>,
    plain: Records<Person>,
    expected: Rc<RefCell<Expected>>,
}

impl History {
    fn below(&self, bound: u64) -> u64 {
        self.world.choices.below(bound)
    }

    fn person(&self, key: u64) -> Person {
        let number = self.below(NUMBERS);
        let text = |length: u64| {
            char::from(b'a' + self.below(4) as u8)
                .to_string()
                .repeat(length as usize)
        };
        let address = text([0, 4, 30, 600, 1_900][self.below(5) as usize]);
        let number = match number % 3 {
            0 => Value::Nothing,
            1 => Value::Text(number.to_string()),
            _ => Value::Text(format!("number {number} of somewhat more letters")),
        };
        vec![
            Value::U64(key),
            number,
            Value::Text(address),
            Value::U64(self.below(5)),
        ]
    }

    /// What a step makes of the people.
    fn begin(&self, name: &str, groups: Vec<Vec<Change>>) {
        self.expected.borrow_mut().begin(name, groups);
    }

    fn present(&self) -> People {
        self.expected.borrow().present.clone()
    }

    fn step(&mut self) {
        match self.below(8) {
            0 | 1 => self.single(true),
            2 => self.single(false),
            3 => self.batch(),
            4 | 5 => self.closure(),
            _ => self.transaction(),
        }
        self.expected.borrow_mut().done();
    }

    /// An operation of its own; it is refused where another has the number.
    fn single(&mut self, is_unique: bool) {
        let key = self.below(KEYS);
        let (name, person, present) = ((is_unique, key), self.person(key), self.present());
        let records = if is_unique { &self.unique } else { &self.plain };
        let is_removed = self.below(4) == 0;
        let is_taken = !is_removed && is_taken(&present, name, &person);
        let after = (!is_removed).then(|| person.clone());
        let groups = if is_taken {
            Vec::new()
        } else {
            vec![vec![(name, after)]]
        };
        self.begin("single", groups);
        let mut people = self.client.records(records);
        let was_there = present.contains_key(&name);
        let done = match (is_removed, was_there) {
            (true, _) => people.delete(key),
            (false, false) => people.insert(&person).map(|()| false),
            (false, true) => people.update(key, |found| found.clone_from(&person)),
        };
        match done {
            Ok(found) => assert_eq!((found, is_taken), (was_there, false)),
            Err(error) => assert!(is_taken, "{error}"),
        }
    }

    /// Records of the table without a unique index, each for itself.
    fn batch(&mut self) {
        let people: Vec<Person> = (0..KEYS)
            .filter(|_| self.below(2) == 0)
            .map(|key| self.person(key))
            .collect();
        let group = |person: &Person| vec![((false, key_of(person)), Some(person.clone()))];
        self.begin("batch", people.iter().map(group).collect());
        self.client
            .records(&self.plain)
            .upsert_batch(&people)
            .unwrap();
    }

    /// A closure in one shard: all of it, or nothing after an error or a panic.
    fn closure(&mut self) {
        let shards = self.world.peers.shards();
        let shard = self.below(shards as u64) as usize;
        let mut after = self.present();
        let mut plan = Vec::new();
        for _ in 0..1 + self.below(8) {
            let key = self.below(KEYS);
            let person = (self.below(4) > 0).then(|| self.person(key));
            plan.push((key, person));
        }
        let end = self.below(4);
        // Keys of other shards are refused or not found here.
        let own = |key: u64| shard_of_key(&self.plain, key, shards) == shard;
        plan.retain(|(key, _)| own(*key));
        for (key, person) in &plan {
            match person {
                Some(person) => drop(after.insert((false, *key), person.clone())),
                None => drop(after.remove(&(false, *key))),
            }
        }
        let groups = if end < 2 {
            vec![changes(&self.present(), &after)]
        } else {
            Vec::new()
        };
        self.begin("closure", groups);
        let plain = self.plain.clone();
        let result = self.client.on(shard, |context| {
            let mut people = context.records(&plain)?;
            for (key, person) in &plan {
                match person {
                    Some(person) => drop(people.upsert(person)?),
                    None => drop(people.delete(*key)?),
                }
            }
            match end {
                2 => Err(Error::NotKeyed),
                3 => std::panic::resume_unwind(Box::new("as planned")),
                _ => Ok(()),
            }
        });
        assert_eq!(result.is_ok(), end < 2);
    }

    fn transaction(&mut self) {
        let mut after = self.present();
        let mut plan = Vec::new();
        for _ in 0..1 + self.below(8) {
            let name = (self.below(3) > 0, self.below(KEYS));
            if self.below(4) == 0 {
                after.remove(&name);
                plan.push((name, None));
                continue;
            }
            let person = self.person(name.1);
            if !is_taken(&after, name, &person) {
                after.insert(name, person.clone());
                plan.push((name, Some(person)));
            }
        }
        let is_given_up = self.below(4) == 0;
        let groups = if is_given_up {
            Vec::new()
        } else {
            vec![changes(&self.present(), &after)]
        };
        self.begin("transaction", groups);
        let isolation = match self.below(2) {
            0 => Isolation::Serializable,
            _ => Isolation::ReadCommitted,
        };
        let (unique, plain) = (&self.unique, &self.plain);
        let options = TransactionOptions::new(isolation);
        let done = self.client.transaction_with(options, |transaction| {
            for ((is_unique, key), person) in &plan {
                let mut people = transaction.records(if *is_unique { unique } else { plain });
                match person {
                    Some(person) => drop(people.upsert(person)?),
                    None => drop(people.delete(*key)?),
                }
            }
            if is_given_up {
                return Err(Error::NotKeyed);
            }
            Ok(())
        });
        assert_eq!(done.is_ok(), !is_given_up, "{done:?}");
    }
}

fn key_of(person: &Person) -> u64 {
    match person[0] {
        Value::U64(key) => key,
        ref other => panic!("{other:?} is no key"),
    }
}

fn shard_of_key(records: &Records<Person>, key: u64, shards: usize) -> usize {
    let shape = records.shape();
    let mut wanted = Vec::new();
    crate::table::write_wanted(shape, &shape.key, &key, &mut wanted).unwrap();
    let (image, _) = crate::table::Image::split(&wanted).unwrap();
    crate::id::shard_of(crate::table::hash_of(&shape.key, &image), shards)
}

/// Whether somebody else has a person's number, where it must be unique.
fn is_taken(people: &People, name: Name, person: &Person) -> bool {
    let mut others = people.range((true, 0)..);
    name.0
        && person[1] != Value::Nothing
        && others.any(|(other, has)| *other != name && has[1] == person[1])
}

/// What makes one state of another.
fn changes(before: &People, after: &People) -> Vec<Change> {
    let set = after
        .iter()
        .filter(|(name, person)| before.get(name) != Some(person));
    let set = set.map(|(name, person)| (*name, Some(person.clone())));
    let gone = before.keys().filter(|name| !after.contains_key(name));
    set.chain(gone.map(|name| (*name, None))).collect()
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
    let files = Rc::new(Files::new(setting.shards));
    let world = files.create(seed, setting);
    let mut history = History {
        client: world.client(),
        unique: world.records("unique", &schema(true)),
        plain: world.records("plain", &schema(false)),
        world: Rc::clone(&world),
        expected: Rc::default(),
    };
    let expected = Rc::clone(&history.expected);
    every_moment(&files, (&world, setting), &expected, people_of, || {
        for _ in 0..STEPS {
            history.step();
            if history.expected.borrow().has_failed() {
                break;
            }
        }
    })
}

#[test]
fn every_moment_of_short_histories_of_records_leaves_each_transaction_whole() {
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
fn faults_in_what_keeps_records_whole_are_noticed() {
    for mutant in [
        Mutant::UndoUnkept,
        Mutant::UndoForwards,
        Mutant::HeadsUnsaved,
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
