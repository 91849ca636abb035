//! What the tests share: engines, watchdogs, child processes, random numbers, and counts of what a
//! process holds.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ancile::{Engine, EngineBuilder, Resident, Schema, SurrogateId, Table, Task};

/// A row that says whose it is, twice.
pub(super) type Pair = [u64; 2];

pub(super) fn builder(shards: usize) -> EngineBuilder {
    Engine::builder().shards(shards).arena_bytes(64 << 20)
}

pub(super) fn engine(shards: usize) -> Engine {
    builder(shards).build().unwrap()
}

pub(super) fn keyed(engine: &Engine, name: &str) -> Table<Pair> {
    engine.create_table(name, Schema::cells(2).keyed()).unwrap()
}

pub(super) fn unkeyed(engine: &Engine, name: &str) -> Table<Pair> {
    engine.create_table(name, Schema::cells(2)).unwrap()
}

/// The first keys that belong to a shard.
pub(super) fn keys_of(
    engine: &Engine,
    table: &Table<Pair>,
    shard: usize,
) -> impl Iterator<Item = SurrogateId> {
    (0..)
        .map(SurrogateId)
        .filter(move |&key| engine.shard_of(table, key) == shard)
}

/// Keeps a shard from serving until something is sent, or the sender is dropped.
pub(super) fn hold(engine: &Engine, shard: usize) -> (Sender<()>, Task<()>) {
    let (release, released) = channel();
    let (held, is_held) = channel();
    let task = engine.spawn(shard, move |_: &mut Resident<'_>| {
        held.send(()).unwrap();
        let _ = released.recv();
    });
    is_held.recv().unwrap();
    (release, task.unwrap())
}

/// Ends the process when it is not dropped in time, so that a hang is a failure with a name.
pub(super) struct Watchdog {
    /// Dropped with the watchdog, which tells its thread.
    _alive: Sender<()>,
}

/// Watches the calling test for a number of seconds that even a crowded machine does not need.
pub(super) fn watchdog(seconds: u64) -> Watchdog {
    let (alive, watched) = channel();
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    std::thread::spawn(move || {
        let waited = watched.recv_timeout(Duration::from_secs(seconds));
        if waited == Err(RecvTimeoutError::Timeout) {
            // Not by a macro: what those print is kept by the harness, which ends here.
            let _ = writeln!(std::io::stderr(), "{test} has hung for {seconds} s");
            std::process::abort();
        }
    });
    Watchdog { _alive: alive }
}

/// Whether the calling test runs alone, in a process of its own. If not, runs it there, and fails
/// if that process fails.
///
/// For what is counted by process: threads, mappings, descriptors, memory, processor time, and the
/// way in which a process ends.
pub(super) fn is_alone() -> bool {
    const ALONE: &str = "ANCILE_TEST_ALONE";
    let test = std::thread::current().name().unwrap().to_owned();
    if std::env::var_os(ALONE).is_some_and(|alone| alone == *test) {
        return true;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(ALONE, &test)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    print!("{told}");
    eprint!("{}", String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{test} alone: {}", child.status);
    assert!(told.contains("1 passed"), "{test} did not run alone");
    false
}

/// Threads, mappings and descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    pub(super) threads: usize,
    pub(super) mappings: usize,
    pub(super) descriptors: usize,
}

impl Holdings {
    pub(super) fn now() -> Self {
        let entries = |path: &str| fs::read_dir(path).unwrap().count();
        Self {
            threads: entries("/proc/self/task"),
            mappings: fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count(),
            descriptors: entries("/proc/self/fd"),
        }
    }
}

/// Bytes of this process in memory.
pub(super) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kilobytes = line.trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// Nanoseconds that the threads of this process have run, those that ended left out.
pub(super) fn processor_nanos() -> u64 {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).ok())
        .map(|stat| {
            let ran = stat.split(' ').next().unwrap();
            ran.parse::<u64>().unwrap()
        })
        .sum()
}

/// Repeatable random numbers: splitmix64.
pub(super) struct Random(u64);

impl Random {
    /// The same numbers each time, so that a test which passed passes again; or from the seed in
    /// `ANCILE_TEST_SEED`, which is printed when the test fails. See `scripts/test-seeds`.
    pub(super) fn seeded() -> Self {
        let given = std::env::var("ANCILE_TEST_SEED").ok();
        let seed = given.map_or(1, |seed| seed.parse().unwrap());
        println!("ANCILE_TEST_SEED={seed}");
        Self(seed)
    }

    /// From a seed that somebody else has printed.
    pub(super) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence for each number.
    pub(super) fn fork(&self, number: u64) -> Self {
        let mut fork = Self(self.0 ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        fork.next();
        fork
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
