//! The power is cut, in a virtual machine whose disk then loses, tears and reorders what was not flushed:
//! what was acknowledged is there, and transactions are whole.
//!
//! The machine is that of a lab, a program that boots one, runs a command in it, and cuts its power:
//! `ANCILE_NUMA_LAB` names it. Without one nothing is done, and that is said; `scripts/crash-soak` runs
//! these tests with it. In the machine runs this program again: it looks at what the last cut has left,
//! and then works until the next one. The control is a process whose syncs do nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ancile::{
    Durability, Engine, Error, Isolation, Schema, SurrogateId, Table, TransactionOptions, Verbs,
};

use super::database::Place;
use super::support::{Random, watchdog};

const LAB: &str = "ANCILE_NUMA_LAB";
const ROUNDS: &str = "ANCILE_POWER_ROUNDS";
const DIRECTORY: &str = "ANCILE_POWER_DIRECTORY";

/// How the lab ends after a cut.
const CUT: i32 = 123;

const WORKERS: u64 = 4;
/// Rows of each worker, which always hold the same number.
const ROWS: u64 = 24;
const ACCOUNTS: u64 = 50;
const BALANCE: u64 = 1_000;

type Row = [u64; 12];

fn open(path: &Path) -> (Engine, Table<Row>, Table<[u64; 1]>) {
    let engine = Engine::builder()
        .shards(3)
        .arena_bytes(64 << 20)
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(1 << 18)
        .retention_bytes(1 << 20)
        .open(path)
        .unwrap();
    let rows = engine
        .open_table("rows")
        .or_else(|_| engine.create_table("rows", Schema::cells(12).keyed()));
    let accounts = engine
        .open_table("accounts")
        .or_else(|_| engine.create_table("accounts", Schema::cells(1).keyed()));
    (engine, rows.unwrap(), accounts.unwrap())
}

/// Looks at what is there, says so, and works until the power is cut.
fn work(path: &Path) -> ! {
    make_room(path);
    if path.join("MANIFEST").exists() {
        match ancile::check(path) {
            // It may have been cut while it was made.
            Err(error) => println!("unchecked {error}"),
            Ok(report) => assert!(report.is_whole(), "{report:?}"),
        }
    }
    let (engine, rows, accounts) = open(path);
    let mut session = engine.session().unwrap();
    let mut sum = (0, 0);
    let scanned = session.scan(&accounts, |_, _, [balance]| {
        sum = (sum.0 + balance, sum.1 + 1);
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    if sum == (0, 0) {
        let made = session.transaction(|transaction| {
            (0..ACCOUNTS).try_for_each(|key| {
                transaction
                    .insert_keyed(&accounts, SurrogateId(key), &[BALANCE])
                    .map(drop)
            })
        });
        made.unwrap();
    } else {
        assert_eq!(sum, (ACCOUNTS * BALANCE, ACCOUNTS), "money and accounts");
    }
    let engine = Arc::new(engine);
    let mut threads = Vec::new();
    for worker in 0..WORKERS {
        let keys: Vec<_> = (0..ROWS)
            .map(|row| SurrogateId(worker << 32 | row))
            .collect();
        let found = session.select_batch(&rows, &keys).unwrap();
        let number = found[0].map_or(0, |row| row[0]);
        let expected = (number > 0).then_some([number; 12]);
        assert!(
            found.iter().all(|row| *row == expected),
            "worker {worker}: a transaction is torn: {found:?}"
        );
        println!("found {worker} {number}");
        let (engine, rows, accounts) = (Arc::clone(&engine), rows.clone(), accounts.clone());
        threads.push(std::thread::spawn(move || {
            let mut session = engine.session().unwrap();
            let options = TransactionOptions::new(Isolation::Serializable).tries(u32::MAX);
            for number in number + 1.. {
                let from = SurrogateId((number * 7 + worker) % ACCOUNTS);
                let to = SurrogateId((number * 7 + worker + 1 + number % 11) % ACCOUNTS);
                let done = session.transaction_with(options, |transaction| {
                    for &key in &keys {
                        transaction.upsert(&rows, key, &[number; 12])?;
                    }
                    let [have] = transaction.select(&accounts, from)?.unwrap();
                    let [other] = transaction.select(&accounts, to)?.unwrap();
                    let amount = have.min(number % 10);
                    transaction.update(&accounts, from, &[have - amount])?;
                    transaction.update(&accounts, to, &[other + amount])?;
                    Ok::<_, Error>(())
                });
                done.unwrap();
                println!("done {worker} {number}");
            }
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    unreachable!("workers work until the end")
}

/// Databases that were given up must not fill the disk.
fn make_room(path: &Path) {
    let disk = path.parent().expect("a directory on the disk");
    for other in std::fs::read_dir(disk).unwrap() {
        let other = other.unwrap().path();
        if other != path && other.join("LOCK").exists() {
            std::fs::remove_dir_all(&other).unwrap();
        }
    }
}

/// The process in the machine, if this is it.
fn be_cut() {
    if let Some(path) = std::env::var_os(DIRECTORY) {
        work(Path::new(&path));
    }
}

struct Cuts {
    lab: PathBuf,
    place: Place,
    random: Random,
    is_control: bool,
    /// What each worker has been told is durable.
    acknowledged: BTreeMap<u64, u64>,
    database: u64,
    operations: u64,
}

impl Cuts {
    fn new(lab: PathBuf, is_control: bool) -> Self {
        let place = Place::new("power");
        std::fs::create_dir(place.path()).unwrap();
        Self {
            lab,
            place,
            random: Random::seeded().fork(u64::from(is_control)),
            is_control,
            acknowledged: BTreeMap::new(),
            database: 0,
            operations: 0,
        }
    }

    /// A machine that works on what the last one has left, until its power is cut.
    fn round(&mut self) -> Result<(), String> {
        if self.random.below(10) == 0 {
            // Another one, which may be cut while it is made.
            self.database += 1;
            self.acknowledged.clear();
        }
        let name = std::thread::current().name().unwrap().to_owned();
        let directory = format!("{DIRECTORY}=/disk0/database-{}", self.database);
        let cut = 500 + self.random.below(5_000);
        let cut = format!("{}.{:03}", cut / 1_000, cut % 1_000);
        let mut command = Command::new(&self.lab);
        command
            .args([
                "--layout",
                "single",
                "--disk-cache",
                "volatile",
                "--disk-size",
                "256M",
            ])
            .arg("--disk")
            .arg(self.place.path().join("disk.img"))
            .args([
                "--cut-after",
                &cut,
                "--seed",
                &self.random.next().to_string(),
            ])
            .args(["--env", &directory]);
        if self.is_control {
            command.args(["--env", "ANCILE_CONTROL_WITHOUT_SYNC=1"]);
        }
        let (said, says) = std::io::pipe().unwrap();
        let mut process = command
            .arg("--")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .stdin(Stdio::null())
            .stdout(says.try_clone().unwrap())
            .stderr(says)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.lab.display()))?;
        drop(command);
        let (mut other, mut lost) = (String::new(), None);
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            match self.take(&line) {
                Ok(true) => {}
                Ok(false) => other += &format!("{line}\n"),
                Err(error) => lost = lost.or(Some(error)),
            }
        }
        let status = process.wait().map_err(|error| error.to_string())?;
        if let Some(lost) = lost {
            return Err(lost);
        }
        if status.code() != Some(CUT) {
            return Err(format!("{status}, after {cut} s:\n{other}"));
        }
        Ok(())
    }

    /// Takes in a line; whether it is one of ours.
    fn take(&mut self, line: &str) -> Result<bool, String> {
        // What the harness says may stand before it.
        let Some(at) = line.find("found ").or_else(|| line.find("done ")) else {
            return Ok(false);
        };
        let words = Vec::from_iter(line[at..].split(' '));
        let [what, worker, number] = words[..] else {
            return Ok(false);
        };
        let (Ok(worker), Ok(number)) = (worker.parse(), number.parse()) else {
            return Ok(false);
        };
        let known = self.acknowledged.entry(worker).or_default();
        if what == "found" && number < *known {
            return Err(format!(
                "worker {worker}: {known} was acknowledged, and {number} is there"
            ));
        }
        self.operations += u64::from(what == "done");
        *known = number;
        Ok(true)
    }
}

fn lab() -> Option<PathBuf> {
    let lab = std::env::var_os(LAB).map(PathBuf::from);
    if lab.is_none() {
        println!("skipped: {LAB} names no program that cuts the power of a machine");
    }
    lab
}

fn rounds(usual: u64) -> u64 {
    std::env::var(ROUNDS).map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn machine_whose_power_is_cut_loses_nothing_that_was_acknowledged() {
    be_cut();
    let Some(lab) = lab() else { return };
    let rounds = rounds(5);
    let _watchdog = watchdog(400 * rounds);
    let mut cuts = Cuts::new(lab, false);
    for round in 0..rounds {
        if let Err(error) = cuts.round() {
            let kept = cuts.place.path().with_extension("kept");
            let _ = std::fs::rename(cuts.place.path(), &kept);
            panic!("round {round}: {error}\nthe disk is in {}", kept.display());
        }
    }
    println!(
        "{rounds} cuts, {} transactions acknowledged before",
        cuts.operations
    );
    assert!(cuts.operations > rounds, "nothing was at work");
}

#[cfg(feature = "internals")]
#[test]
fn machine_whose_syncs_do_nothing_loses_something_when_its_power_is_cut() {
    be_cut();
    let Some(lab) = lab() else { return };
    let rounds = rounds(5).clamp(20, 60);
    let _watchdog = watchdog(400 * rounds);
    let mut cuts = Cuts::new(lab, true);
    let wrong = (0..rounds).find_map(|round| Some((round, cuts.round().err()?)));
    let (round, error) = wrong.expect("the control survives: the cuts would notice nothing");
    println!("round {round}: {error}");
    assert!(cuts.operations > 0, "nothing was at work");
}
