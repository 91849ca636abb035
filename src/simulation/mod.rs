//! Shards, clients and residents stepped by one seeded thread, over slow and uneven messages.
//!
//! The shards are the real ones; only what is outside of them is simulated: who runs next, and when
//! a message arrives. Time is a counter of steps. A client's verbs are the real ones, too: while one
//! waits, the world takes steps. A failure is a seed, printed with it, and happens again with it.

mod chain;
mod check;
mod crash;
mod durable;
mod futures;
mod history;
mod mutants;
mod schedules;
mod scripts;
mod singles;
mod strand;
mod test;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::arena::{Arena, Heap, MapOptions};
use crate::error::Result;
use crate::fork::Home;
use crate::id::{ShardIndex, TableKey, hash};
use crate::journal::{Durable, EpochClock};
use crate::limits::LEASE_MICROS;
use crate::session::{Acknowledge, Host, Lane, Link, Peers, Port};
use crate::shard::{Content, Delivery, Inbox, Mailbox, Shard, TableShape};
use crate::table::{
    Globals, IndexKind, RecordSchema, RecordShape, Records, Routing, Row, Schema, Shape, Table,
    Value, watch,
};
use crate::transaction::Stub;
use crate::writer::Writer;
use strand::Turns;

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
    /// A proposal takes up to so many steps from one shard to the next.
    pub(crate) relay_delay_max: u64,
}

impl Setting {
    /// One of many settings, chosen by a seed; small rings are as likely as large ones.
    pub(crate) fn chosen(choices: &Choices) -> Self {
        Self {
            shards: 1 + choices.below(5) as usize,
            lane_requests: [1, 2, 3, 64][choices.below(4) as usize],
            block_operations: [1, 2, 3, 64][choices.below(4) as usize],
            delay_max: [0, 3, 40][choices.below(3) as usize],
            relay_delay_max: [0, 3, 40][choices.below(3) as usize],
        }
    }
}

/// Everything that a seed makes happen.
pub(crate) struct World {
    shards: Vec<RefCell<Seat>>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) choices: Choices,
    clock: Arc<AtomicU64>,
    delay_max: u64,
    tables: RefCell<Vec<TableShape>>,
    /// Of shards with journals.
    writer: RefCell<Option<Writer>>,
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
    salt: u64,
    /// Of lanes, and of relays.
    delays_max: [u64; 2],
    lanes: Vec<u64>,
    relays: Vec<u64>,
}

impl Slow {
    /// Whether the time has come at which something was to be looked at again.
    fn is_time(&self, arrivals: &mut Vec<u64>, number: usize, delay_max: u64) -> bool {
        if arrivals.len() <= number {
            arrivals.resize(number + 1, 0);
        }
        if arrivals[number] > self.now {
            return false;
        }
        // Some ways are always slower than others.
        let slowness = [0, 1, 1, 8][(hash(self.salt ^ number as u64) % 4) as usize];
        arrivals[number] = self.now + self.choices.below(slowness * delay_max + 1);
        true
    }
}

impl Delivery for Slow {
    fn has_arrived(&mut self, lane: usize) -> bool {
        let mut lanes = std::mem::take(&mut self.lanes);
        let is_time = self.is_time(&mut lanes, lane, self.delays_max[0]);
        self.lanes = lanes;
        is_time
    }

    fn has_relayed(&mut self, relay: usize) -> bool {
        let mut relays = std::mem::take(&mut self.relays);
        let is_time = self.is_time(&mut relays, relay, self.delays_max[1]);
        self.relays = relays;
        is_time
    }
}

impl World {
    pub(crate) fn new(seed: u64, setting: Setting) -> Rc<Self> {
        let options = MapOptions {
            bytes: 16 << 20,
            node: None,
            huge_pages: false,
        };
        let arenas = (0..setting.shards).map(|_| Arena::new(&options).unwrap());
        Self::with(seed, setting, arenas.collect(), None)
    }

    /// A world whose shards have these arenas.
    fn with(
        seed: u64,
        setting: Setting,
        arenas: Vec<Arena>,
        epochs: Option<Arc<EpochClock>>,
    ) -> Rc<Self> {
        let clock = Arc::new(AtomicU64::new(0));
        let reading = Arc::clone(&clock);
        let peers = Arc::new(Peers {
            epochs,
            acknowledge: Acknowledge::Durable,
            clock: Arc::new(move || reading.load(Ordering::Relaxed)),
            home: Home::here(),
            open: AtomicUsize::new(setting.shards),
            mailboxes: (0..setting.shards)
                .map(|_| Arc::new(Mailbox::new()))
                .collect(),
            block_operations: setting.block_operations,
            lane_requests: setting.lane_requests,
        });
        let seat = |(index, arena): (ShardIndex, Arena)| {
            let shard = Shard::new(
                index,
                &peers.mailboxes,
                Arc::clone(&peers.clock),
                arena,
                &Heap::new(None, 1 << 20),
            );
            let slow = Slow {
                choices: Choices::new(seed ^ (index as u64) << 32),
                now: 0,
                salt: hash(seed ^ (index as u64) << 48),
                delays_max: [setting.delay_max, setting.relay_delay_max],
                lanes: Vec::new(),
                relays: Vec::new(),
            };
            let inbox = Inbox::new(Arc::clone(&peers.mailboxes[index]));
            RefCell::new(Seat { shard, inbox, slow })
        };
        let shards = arenas.into_iter().enumerate().map(seat).collect();
        let choices = Choices::new(seed);
        Rc::new(Self {
            shards,
            peers,
            choices,
            clock,
            delay_max: setting.delay_max.max(setting.relay_delay_max),
            tables: RefCell::default(),
            writer: RefCell::default(),
        })
    }

    /// A table in every shard.
    pub(crate) fn table<R: Row>(&self, name: &str, schema: &Schema) -> Table<R> {
        let stamp = hash(self.now()) as u32;
        let index = self.shards[0].borrow_mut().shard.catalog.table_count() as u32;
        let key = TableKey { index, stamp };
        let shape = TableShape {
            key,
            serial: index + 1,
            content: Content::Rows {
                columns: schema.columns().len(),
                keyed: schema.is_keyed(),
            },
        };
        for (index, seat) in self.shards.iter().enumerate() {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            catalog.create(&shape, index, 0).unwrap();
        }
        self.tables.borrow_mut().push(shape);
        Table::new(key, name, schema).unwrap()
    }

    /// Globals in every shard.
    pub(crate) fn globals(&self, name: &str, routing: Routing) -> Globals {
        let stamp = hash(self.now()) as u32;
        let index = self.shards[0].borrow_mut().shard.catalog.table_count() as u32;
        let key = TableKey { index, stamp };
        let shape = TableShape {
            key,
            serial: index + 1,
            content: Content::Globals(routing),
        };
        for (index, seat) in self.shards.iter().enumerate() {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            catalog.create(&shape, index, 0).unwrap();
        }
        self.tables.borrow_mut().push(shape);
        Globals::new(key, name, routing)
    }

    /// Records in every shard, and before them, each in a table of its own, the entries of their unique
    /// indexes.
    pub(crate) fn records(&self, name: &str, schema: &RecordSchema) -> Records<Vec<Value>> {
        let indexes = schema.indexes().iter();
        let unique = indexes.filter(|index| index.kind == IndexKind::Unique);
        let entries = unique.map(|index| self.record_parts(&schema.entries_of(index)));
        let entries: Vec<TableKey> = entries.collect();
        let key = self.record_parts(schema);
        Records::new(key, name, schema, &entries)
    }

    fn record_parts(&self, schema: &RecordSchema) -> TableKey {
        let stamp = hash(self.now()) as u32;
        let index = self.shards[0].borrow_mut().shard.catalog.table_count() as u32;
        let key = TableKey { index, stamp };
        let shape = Shape::new(schema);
        let serial = 100 * (index + 1);
        let index_serials = (serial + 1..).take(shape.indexes.len()).collect();
        let shape = TableShape {
            key,
            serial,
            content: Content::Records(Arc::new(RecordShape {
                shape,
                index_serials,
            })),
        };
        for (index, seat) in self.shards.iter().enumerate() {
            let catalog = &mut seat.borrow_mut().shard.catalog;
            catalog.create(&shape, index, 0).unwrap();
        }
        self.tables.borrow_mut().push(shape);
        key
    }

    /// Whether no intents stand in any shard.
    pub(crate) fn is_idle(&self) -> bool {
        self.shards.iter().all(|seat| seat.borrow().shard.is_idle())
    }

    fn pass_time(&self, micros: u64) {
        self.clock.fetch_add(micros, Ordering::Relaxed);
    }

    /// Lets one shard, chosen by chance, take a step; says whether it did something.
    pub(crate) fn step(&self) -> bool {
        let writer = &mut *self.writer.borrow_mut();
        let others = u64::from(writer.is_some());
        let index = self.choices.below(self.shards.len() as u64 + others) as usize;
        if let Some(writer) = writer
            && index == self.shards.len()
        {
            self.pass_time(1);
            return writer.step(self.now());
        }
        // Now and then the system runs somebody else for long.
        self.pass_time(if self.choices.below(500) == 0 {
            self.choices.below(LEASE_MICROS)
        } else {
            1
        });
        // A shard that is taking a step, and waits inside of it, has its turn there.
        let Ok(mut seat) = self.shards[index].try_borrow_mut() else {
            return false;
        };
        let Seat { shard, inbox, slow } = &mut *seat;
        slow.now = self.now();
        let might_sleep = !shard.has_work(inbox) && shard.patience() != Some(1);
        let served = shard.tick_delayed(inbox, slow);
        assert!(
            served == 0 || !might_sleep,
            "a shard that has something to do could sleep"
        );
        served > 0
    }

    /// A client outside of all shards.
    pub(crate) fn client(self: &Rc<Self>) -> Client<'static> {
        let turn = self.choices.below(self.shards.len() as u64) as usize;
        Client {
            link: Link::new(Arc::clone(&self.peers), turn),
            host: Outside {
                world: Rc::clone(self),
                way: Way::Stepping { stuck: 0 },
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
                way: Way::Stepping { stuck: 0 },
            },
        })
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }
}

/// How the world goes on while a client waits.
enum Way<'y> {
    /// The client lets it take a step.
    Stepping { stuck: u64 },
    /// The client is a strand, and is left.
    Strand(&'y Turns<'y>),
}

impl Way<'_> {
    fn pass(&mut self, world: &World) {
        match self {
            Self::Stepping { .. } => {
                world.step();
            }
            Self::Strand(turns) => turns.pass(),
        }
    }

    fn pause(&mut self, world: &World, round: u32) {
        if let Self::Stepping { stuck } = self {
            *stuck = if round == 0 { 0 } else { *stuck + 1 };
            assert!(
                *stuck < STUCK_STEPS * (1 + world.delay_max),
                "nothing moves any more"
            );
        }
        self.pass(world);
    }

    fn pause_under_way(&mut self, world: &World, round: u32) {
        match self {
            Self::Stepping { .. } => self.pause(world, round),
            Self::Strand(turns) => turns.pass_under_way(),
        }
    }

    /// Whatever is done in a shard from now on is done for this client.
    fn act(&self) {
        if let Self::Strand(turns) = self {
            watch::act_for(turns.actor());
        }
    }
}

/// A simulated thread of the program.
pub(crate) struct Client<'y> {
    link: Link,
    host: Outside<'y>,
}

pub(crate) struct Outside<'y> {
    world: Rc<World>,
    way: Way<'y>,
}

impl Host for Outside<'_> {
    fn own(&self) -> Option<ShardIndex> {
        None
    }

    fn with_shard<T>(&mut self, _work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        None
    }

    fn serve(&mut self) {
        if self.world.choices.below(2) == 0 {
            self.way.pass(&self.world);
        }
    }

    fn wait_turn(&mut self, _round: u32) {
        self.way.pass(&self.world);
    }

    fn await_end(&mut self, round: u32, _stub: &Stub, _may_sleep: bool) {
        self.way.pause_under_way(&self.world, round);
    }

    fn await_epoch(&mut self, round: u32, clock: &EpochClock, epoch: u64) -> Durable {
        self.wait_turn(round);
        clock.look(epoch)
    }

    fn pause(&mut self, round: u32, _lane: &Lane) {
        self.way.pause(&self.world, round);
    }
}

impl Client<'_> {
    /// Sets when changes count as done.
    fn set_acknowledge(&mut self, when: Acknowledge) {
        self.link.set_acknowledge(when);
    }
}

impl<'y> Port for Client<'y> {
    type Host<'a>
        = &'a mut Outside<'y>
    where
        Self: 'a;

    fn port(&mut self) -> Result<(&mut Link, &mut Outside<'y>)> {
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
    way: Way<'a>,
}

impl Host for Dweller<'_> {
    fn own(&self) -> Option<ShardIndex> {
        Some(self.seat.shard.index)
    }

    fn with_shard<T>(&mut self, work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        self.way.act();
        let result = work(&mut self.seat.shard);
        // The shard may have gone on with what others have sent.
        self.way.act();
        Some(result)
    }

    fn serve(&mut self) {
        let Seat { shard, inbox, slow } = &mut *self.seat;
        slow.now = self.world.now();
        shard.tick_delayed(inbox, slow);
        self.way.act();
    }

    fn wait_turn(&mut self, round: u32) {
        self.serve();
        self.way.pause(self.world, round);
    }

    fn await_end(&mut self, round: u32, _stub: &Stub, _may_sleep: bool) {
        self.serve();
        self.way.pause_under_way(self.world, round);
    }

    fn await_epoch(&mut self, round: u32, clock: &EpochClock, epoch: u64) -> Durable {
        self.wait_turn(round);
        clock.look(epoch)
    }

    fn pause(&mut self, round: u32, _lane: &Lane) {
        self.serve();
        self.way.pause(self.world, round);
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
