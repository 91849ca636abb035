//! Shards with journals over a disk that fails: the real shards, their clients and the writer, stepped by
//! one thread, until the power is cut; and then what the disk has left.
//!
//! # What is checked
//! Each client has a row in every shard, and counts: its n-th transaction sets all of its rows to n, and
//! notes in each how far it has seen the others. After a crash
//! - all rows of a client have the same count (transactions are whole),
//! - it is no lower than the last that the client was told is durable (nothing acknowledged is lost),
//! - nor higher than the last that it began (nothing is made up),
//! - and nobody has seen more of another client than is there (what is there is a consistent cut).

mod globals;
mod lab;
mod model;
mod worker;

use std::cell::RefCell;
use std::rc::Rc;

use super::strand::Strands;
use super::{Choices, Setting, World};
use crate::arena::mutant::{self, Mutant};
use crate::error::{Error, Result};
use crate::id::{RowId, SurrogateId, TableKey};
use crate::journal::simulated::{Fault, Loss};
use crate::session::{Acknowledge, Isolation, TransactionOptions, Verbs};
use crate::shard::{Content, TableShape};
use crate::table::{Schema, Table};
use lab::{LOSSES, Lab, find, seeds_of};

const CLIENTS_MAX: usize = 3;

/// A count, and the counts of others that were seen when it was set.
type Row = [u64; 1 + CLIENTS_MAX];

const TABLE: &str = "counts";

fn schema() -> Schema {
    Schema::cells(1 + CLIENTS_MAX).keyed()
}

fn shape() -> TableShape {
    TableShape {
        key: TableKey { index: 0, stamp: 9 },
        serial: 1,
        content: Content::Rows {
            columns: 1 + CLIENTS_MAX,
            keyed: true,
        },
    }
}

/// A machine, and what its programs know without it.
struct Life {
    lab: Lab,
    clients: usize,
    /// Clients do not wait for the disk, but now and then.
    is_relaxed: bool,
    /// What each client has begun, and what it was told is durable.
    begun: RefCell<Vec<u64>>,
    told: RefCell<Vec<u64>>,
}

/// Where a client's row in a shard is.
fn key(client: usize, shard: usize, shards: usize) -> SurrogateId {
    let own = |key: &SurrogateId| key.shard_of(shards) == shard;
    (0..)
        .map(SurrogateId)
        .filter(own)
        .nth(client)
        .expect("every shard has keys without end")
}

impl Life {
    fn new(seed: u64, setting: Setting, clients: usize, is_relaxed: bool) -> Self {
        Self {
            lab: Lab::new(seed, setting, is_relaxed, shape()),
            clients,
            is_relaxed,
            begun: RefCell::new(vec![0; clients]),
            told: RefCell::new(vec![0; clients]),
        }
    }

    /// Makes the table and its rows, which are durable then.
    fn furnish(&self, seed: u64) -> Result<(), String> {
        let world = self.lab.furnish(seed)?;
        let table = table();
        let mut client = world.client();
        for number in 0..self.clients {
            let shards = self.lab.setting.shards;
            for shard in 0..shards {
                let key = key(number, shard, shards);
                let row = [0; 1 + CLIENTS_MAX];
                client.insert_keyed(&table, key, &row).unwrap();
            }
        }
        Ok(())
    }

    /// Lets the clients work, each so many transactions, until the end or until the machine is down;
    /// says whether it was the end.
    fn live(self: &Rc<Self>, world: &Rc<World>, transactions: u64) -> bool {
        let mut strands = Strands::new(world);
        for number in 0..self.clients {
            let life = Rc::clone(self);
            strands.add(true, move |turns| {
                let mut client = turns.client();
                for _ in 0..transactions {
                    if life.work(&mut client, number).is_err() {
                        return;
                    }
                }
            });
        }
        self.lab.run(strands)
    }

    /// One transaction of a client.
    fn work(&self, client: &mut super::Client<'_>, number: usize) -> Result<()> {
        let (table, shards) = (table(), self.lab.setting.shards);
        let next = {
            let mut begun = self.begun.borrow_mut();
            begun[number] += 1;
            begun[number]
        };
        let waits = !self.is_relaxed || next % 8 == 0;
        client.set_acknowledge(match waits {
            true => Acknowledge::Durable,
            false => Acknowledge::Executed,
        });
        let options = TransactionOptions::new(Isolation::ReadCommitted);
        client.transaction_with(options, |transaction| {
            let mut row: Row = [next, 0, 0, 0];
            for other in 0..self.clients {
                let shard = (next as usize + other) % shards;
                let key = key(other, shard, shards);
                let seen = transaction.select(&table, key)?.unwrap_or_default();
                row[1 + other] = seen[0];
            }
            for shard in 0..shards {
                transaction.update(&table, key(number, shard, shards), &row)?;
            }
            Ok::<_, Error>(())
        })?;
        if waits {
            self.told.borrow_mut()[number] = next;
        }
        Ok(())
    }

    /// Looks at what is there, in a world that was just opened.
    fn check(&self, world: &Rc<World>) -> Result<(), String> {
        let (table, shards) = (table(), self.lab.setting.shards);
        let mut client = world.client();
        let mut rows = Vec::new();
        for number in 0..self.clients {
            let keys: Vec<SurrogateId> = (0..shards)
                .map(|shard| key(number, shard, shards))
                .collect();
            let found = client.select_batch::<Row, _>(&table, &keys);
            let found = found.map_err(|error| error.to_string())?;
            let found: Option<Vec<Row>> = found.into_iter().collect();
            let found = found.ok_or_else(|| format!("a row of client {number} is gone"))?;
            if found.iter().any(|row| row != &found[0]) {
                return Err(format!("client {number} is torn: {found:?}"));
            }
            rows.push(found[0]);
        }
        for (number, row) in rows.iter().enumerate() {
            let (told, begun) = (self.told.borrow()[number], self.begun.borrow()[number]);
            if !(told..=begun).contains(&row[0]) {
                return Err(format!(
                    "client {number} has {}, but was told {told}, and began {begun}",
                    row[0]
                ));
            }
            for (other, there) in rows.iter().enumerate() {
                if row[1 + other] > there[0] {
                    return Err(format!(
                        "client {number} has seen {} of client {other}, which has {}",
                        row[1 + other],
                        there[0]
                    ));
                }
            }
        }
        // The next life goes on from what is there.
        for (number, row) in rows.iter().enumerate() {
            self.begun.borrow_mut()[number] = row[0];
            self.told.borrow_mut()[number] = row[0];
        }
        Ok(())
    }
}

/// A small life whose power is cut at a step, if it has so many; whether it has, or what is wrong.
fn run_cut(seed: u64, step: u64, loss: Loss) -> Result<bool, String> {
    let setting = Setting {
        shards: 2,
        lane_requests: 3,
        block_operations: 2,
        delay_max: 3,
        relay_delay_max: 3,
    };
    let life = Rc::new(Life::new(seed, setting, 2, seed % 2 == 1));
    life.furnish(seed)?;
    let world = life.lab.open(seed)?;
    life.lab.machine.plan(step, Fault::PowerCut);
    let has_ended = life.live(&world, 3);
    life.lab.machine.restart(loss, seed);
    let world = life.lab.open(!seed)?;
    life.check(&world)?;
    Ok(!has_ended)
}

#[test]
fn power_cut_at_every_step_of_a_small_life_leaves_what_was_acknowledged() {
    let seeds = seeds_of("ANCILE_DURABLE_LIVES", 2);
    let count = seeds.end - seeds.start;
    let mut crashes = 0;
    for seed in seeds {
        for loss in LOSSES {
            for step in 1.. {
                match run_cut(seed, step, loss) {
                    Ok(true) => crashes += 1,
                    Ok(false) => break,
                    Err(error) => panic!("seed {seed}, step {step}, {loss:?}: {error}"),
                }
            }
        }
    }
    println!("{count} lives, {crashes} crashes");
    assert!(crashes >= 10 * count);
}

#[test]
fn when_nothing_becomes_durable_any_more_changes_are_refused_and_reads_go_on() {
    let setting = Setting::chosen(&Choices::new(1));
    let life = Life::new(1, setting, 1, true);
    life.furnish(1).unwrap();
    let world = life.lab.open(2).unwrap();
    let mut client = world.client();
    client.set_acknowledge(Acknowledge::Executed);
    let (table, key) = (table(), key(0, 0, setting.shards));
    let row = [1; 1 + CLIENTS_MAX];
    assert_eq!(client.update(&table, key, &row), Ok(true));
    world.peers.epochs.as_ref().unwrap().fail("lost".to_owned());
    assert_eq!(
        client.update(&table, key, &[2; 1 + CLIENTS_MAX]),
        Err(Error::JournalBroken)
    );
    assert_eq!(client.select(&table, key), Ok(Some(row)));
    let lost = Err(Error::NotDurable("lost".to_owned()));
    assert_eq!(client.flush(), lost);
}

#[test]
fn each_fault_of_a_shards_side_is_noticed() {
    for fault in [
        Mutant::FrozenUnkept,
        Mutant::PagesUnmarked,
        Mutant::ClockUnread,
        Mutant::RangesForgotten,
    ] {
        mutant::CURRENT.set(Some(fault));
        let found = find(0..1_000, |seed| run_seed(seed).map(drop));
        mutant::CURRENT.set(None);
        let (seed, error) = found.unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        println!("{fault:?}: seed {seed}: {error}");
    }
}

fn table() -> Table<Row> {
    Table::new(shape().key, TABLE, &schema()).unwrap()
}

/// One life: clients work, the power is cut at a step, and what is left is looked at; again and again.
/// How many crashes there were.
fn run_seed(seed: u64) -> Result<(u64, u64), String> {
    let choices = Choices::new(seed);
    let setting = Setting {
        shards: 1 + choices.below(3) as usize,
        ..Setting::chosen(&choices)
    };
    let clients = 1 + choices.below(CLIENTS_MAX as u64) as usize;
    let is_relaxed = choices.below(2) == 0;
    let life = Rc::new(Life::new(seed, setting, clients, is_relaxed));
    life.furnish(seed)?;
    let mut crashes = 0;
    for round in 0..1 + choices.below(4) {
        let world = life.lab.open(seed ^ round << 20)?;
        life.lab.plan(&choices);
        life.live(&world, 2 + choices.below(60));
        let loss = LOSSES[choices.below(4) as usize];
        let world = life.lab.recover(loss, seed ^ round << 32, &choices)?;
        life.check(&world)?;
        crashes += 1;
    }
    Ok((crashes, life.lab.checkpoints.get()))
}

#[test]
fn power_cut_at_any_step_leaves_what_was_acknowledged_and_a_consistent_cut() {
    let seeds = seeds_of("ANCILE_DURABLE_SEEDS", 150);
    let count = seeds.end - seeds.start;
    let (mut crashes, mut checkpoints) = (0, 0);
    for seed in seeds {
        match run_seed(seed) {
            Ok((more, taken)) => {
                crashes += more;
                checkpoints += taken;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    println!("{count} seeds, {crashes} crashes, {checkpoints} checkpoints");
    assert!(crashes >= count);
}
