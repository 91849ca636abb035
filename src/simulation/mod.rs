//! Shards, clients and residents stepped by one seeded thread, over slow and uneven messages.
//!
//! The shards are the real ones; only what is outside of them is simulated: who runs next, and when
//! a message arrives. Time is a counter of steps. A client's verbs are the real ones, too: while one
//! waits, the world takes steps. A failure is a seed, printed with it, and happens again with it.

mod test;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::arena::{Arena, Heap, MapOptions};
use crate::error::Result;
use crate::id::{ShardIndex, TableKey, hash};
use crate::session::{Host, Lane, Link, Peers, Port};
use crate::shard::{Delivery, Inbox, Mailbox, Shard};
use crate::table::{Row, Schema, Table};

/// Steps without any progress after which the world counts as stuck.
const STUCK_STEPS: u64 = 1_000_000;

/// A seeded source of choices.
#[derive(Clone, Debug)]
pub(crate) struct Choices(Cell<u64>);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(hash(seed)))
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.set(hash(self.0.get()));
        self.0.get() % bound
    }
}

/// How large the world's rings and blocks are, and how slow its messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) shards: usize,
    pub(crate) lane_requests: usize,
    pub(crate) block_operations: usize,
    /// A message takes up to so many steps.
    pub(crate) delay_max: u64,
}

impl Setting {
    /// One of many settings, chosen by a seed; small rings are as likely as large ones.
    pub(crate) fn chosen(choices: &Choices) -> Self {
        Self {
            shards: 1 + choices.below(5) as usize,
            lane_requests: [1, 2, 3, 64][choices.below(4) as usize],
            block_operations: [1, 2, 3, 64][choices.below(4) as usize],
            delay_max: [0, 3, 40][choices.below(3) as usize],
        }
    }
}

/// Everything that a seed makes happen.
pub(crate) struct World {
    shards: Vec<RefCell<Seat>>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) choices: Choices,
    clock: Cell<u64>,
    delay_max: u64,
}

struct Seat {
    shard: Shard,
    inbox: Inbox,
    slow: Slow,
}

/// Each lane is looked at again only after a delay.
struct Slow {
    choices: Choices,
    now: u64,
    delay_max: u64,
    arrivals: Vec<u64>,
}

impl Delivery for Slow {
    fn has_arrived(&mut self, lane: usize) -> bool {
        if self.arrivals.len() <= lane {
            self.arrivals.resize(lane + 1, 0);
        }
        if self.arrivals[lane] > self.now {
            return false;
        }
        self.arrivals[lane] = self.now + self.choices.below(self.delay_max + 1);
        true
    }
}

impl World {
    pub(crate) fn new(seed: u64, setting: Setting) -> Rc<Self> {
        let peers = Arc::new(Peers {
            mailboxes: (0..setting.shards)
                .map(|_| Arc::new(Mailbox::new()))
                .collect(),
            block_operations: setting.block_operations,
            lane_requests: setting.lane_requests,
        });
        let seat = |index: ShardIndex| {
            let arena = Arena::new(&MapOptions {
                bytes: 16 << 20,
                node: None,
                huge_pages: false,
            });
            let shard = Shard::new(
                index,
                setting.shards,
                arena.unwrap(),
                &Heap::new(None, 1 << 20),
            );
            let slow = Slow {
                choices: Choices::new(seed ^ (index as u64) << 32),
                now: 0,
                delay_max: setting.delay_max,
                arrivals: Vec::new(),
            };
            let inbox = Inbox::new(Arc::clone(&peers.mailboxes[index]));
            RefCell::new(Seat { shard, inbox, slow })
        };
        let shards = (0..setting.shards).map(seat).collect();
        let choices = Choices::new(seed);
        Rc::new(Self {
            shards,
            peers,
            choices,
            clock: Cell::new(0),
            delay_max: setting.delay_max,
        })
    }

    /// A table in every shard.
    pub(crate) fn table<R: Row>(&self, name: &str, schema: &Schema) -> Table<R> {
        let stamp = hash(self.clock.get()) as u32;
        let index = self.shards[0].borrow_mut().shard.catalog.table_count() as u32;
        let key = TableKey { index, stamp };
        for (index, seat) in self.shards.iter().enumerate() {
            let columns = schema.columns().len();
            let catalog = &mut seat.borrow_mut().shard.catalog;
            catalog
                .create(key, index, columns, schema.is_keyed(), 0)
                .unwrap();
        }
        Table::new(key, name, schema).unwrap()
    }

    /// Lets one shard, chosen by chance, take a step; says whether it did something.
    pub(crate) fn step(&self) -> bool {
        let index = self.choices.below(self.shards.len() as u64) as usize;
        self.clock.set(self.clock.get() + 1);
        // A shard that is taking a step, and waits inside of it, has its turn there.
        let Ok(mut seat) = self.shards[index].try_borrow_mut() else {
            return false;
        };
        let Seat { shard, inbox, slow } = &mut *seat;
        slow.now = self.clock.get();
        shard.tick_delayed(inbox, slow) > 0
    }

    /// A client outside of all shards.
    pub(crate) fn client(self: &Rc<Self>) -> Client {
        let turn = self.choices.below(self.shards.len() as u64) as usize;
        Client {
            link: Link::new(Arc::clone(&self.peers), turn),
            host: Outside {
                world: Rc::clone(self),
                stuck: 0,
            },
        }
    }

    /// Runs resident work inside a shard.
    pub(crate) fn inside<T>(
        &self,
        index: ShardIndex,
        work: impl FnOnce(&mut Insider<'_>) -> T,
    ) -> T {
        let mut seat = self.shards[index].borrow_mut();
        let mut link = Link::new(Arc::clone(&self.peers), index);
        work(&mut Insider {
            link: &mut link,
            host: Dweller {
                world: self,
                seat: &mut seat,
                stuck: 0,
            },
        })
    }

    fn pause(&self, stuck: &mut u64, round: u32) {
        *stuck = if round == 0 { 0 } else { *stuck + 1 };
        assert!(
            *stuck < STUCK_STEPS * (1 + self.delay_max),
            "nothing moves any more"
        );
        self.step();
    }
}

/// A simulated thread of the program.
pub(crate) struct Client {
    link: Link,
    host: Outside,
}

pub(crate) struct Outside {
    world: Rc<World>,
    stuck: u64,
}

impl Host for Outside {
    fn own(&self) -> Option<ShardIndex> {
        None
    }

    fn with_shard<T>(&mut self, _work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        None
    }

    fn serve(&mut self) {
        if self.world.choices.below(2) == 0 {
            self.world.step();
        }
    }

    fn pause(&mut self, round: u32, _lane: &Lane) {
        self.world.pause(&mut self.stuck, round);
    }
}

impl Port for Client {
    type Host<'a> = &'a mut Outside;

    fn port(&mut self) -> Result<(&mut Link, &mut Outside)> {
        Ok((&mut self.link, &mut self.host))
    }
}

/// Simulated resident work.
pub(crate) struct Insider<'a> {
    link: &'a mut Link,
    host: Dweller<'a>,
}

pub(crate) struct Dweller<'a> {
    world: &'a World,
    seat: &'a mut Seat,
    stuck: u64,
}

impl Host for Dweller<'_> {
    fn own(&self) -> Option<ShardIndex> {
        Some(self.seat.shard.index)
    }

    fn with_shard<T>(&mut self, work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        Some(work(&mut self.seat.shard))
    }

    fn serve(&mut self) {
        let Seat { shard, inbox, slow } = &mut *self.seat;
        slow.now = self.world.clock.get();
        shard.tick_delayed(inbox, slow);
    }

    fn pause(&mut self, round: u32, _lane: &Lane) {
        self.serve();
        self.world.pause(&mut self.stuck, round);
    }
}

impl<'r> Port for Insider<'r> {
    type Host<'a>
        = &'a mut Dweller<'r>
    where
        Self: 'a;

    fn port(&mut self) -> Result<(&mut Link, &mut Dweller<'r>)> {
        Ok((self.link, &mut self.host))
    }
}
