//! A process is killed at any moment of its work, and its database opened again: what was acknowledged
//! is there, and what was not is there as a whole or not at all. The files are checked, too, as they were
//! left and as they are after a close.
//!
//! The child is this program, started with a directory in its environment. It tells through a pipe,
//! which outlives it. Some kills hit it while it opens the database; some of what they leave is opened
//! by the next child before anybody has brought it in order. The seed decides all but the moment: that
//! depends on the machine.

mod child;
mod model;
mod people;
mod records;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ancile::{Durability, Engine, EngineBuilder};

use super::database::Place;
use super::support::{Random, watchdog};
use model::Model;

/// Rounds of one run of the test, unless the environment says otherwise.
const ROUNDS: u64 = 20;

/// Rounds within which a process that keeps no before-images must leave something wrong.
#[cfg(feature = "internals")]
const CONTROL_ROUNDS: u64 = 300;

const DIRECTORY: &str = "ANCILE_KILL_DIRECTORY";
const SEED: &str = "ANCILE_KILL_SEED";
/// The process opens the database, and does nothing else.
const IDLE: &str = "ANCILE_KILL_IDLE";

/// The database has journals.
const JOURNAL: &str = "ANCILE_KILL_JOURNAL";

fn settings(has_journals: bool) -> EngineBuilder {
    let settings = Engine::builder().shards(3).arena_bytes(256 << 20);
    if !has_journals {
        return settings;
    }
    settings
        .durability(Durability::Commit)
        .journal_segment_bytes(1 << 20)
        .checkpoint_bytes(1 << 20)
}

/// The process under test, if this is one.
fn be_killed() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let seed = std::env::var(SEED).unwrap().parse().unwrap();
        let is_idle = std::env::var_os(IDLE).is_some();
        let settings = settings(std::env::var_os(JOURNAL).is_some());
        child::work(settings, Path::new(&directory), seed, is_idle);
    }
}

#[test]
fn killed_process_loses_nothing_that_it_has_acknowledged_and_leaves_nothing_torn() {
    be_killed();
    kill_again_and_again(false);
}

#[test]
fn killed_process_with_journals_loses_nothing_that_it_has_acknowledged_and_leaves_nothing_torn() {
    be_killed();
    kill_again_and_again(true);
}

fn kill_again_and_again(has_journals: bool) {
    let rounds = std::env::var("ANCILE_KILL_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let _watchdog = watchdog(120 + 2 * rounds);
    let mut kills = Kills::new(&Random::seeded(), false);
    kills.has_journals = has_journals;
    for round in 0..rounds {
        if let Err(error) = kills.round() {
            let kept = kills.keep();
            panic!(
                "round {round}: {error}; the database is in {}",
                kept.display()
            );
        }
    }
    println!(
        "{rounds} rounds: {} kills, {} operations acknowledged before",
        kills.kills, kills.model.acknowledged
    );
    assert!(kills.model.acknowledged > rounds);
}

#[cfg(feature = "internals")]
#[test]
fn without_before_images_a_killed_process_leaves_something_wrong() {
    be_killed();
    let _watchdog = watchdog(120 + 2 * CONTROL_ROUNDS);
    let mut kills = Kills::new(&Random::seeded(), true);
    let wrong = (0..CONTROL_ROUNDS).find_map(|round| Some((round, kills.round().err()?)));
    let (round, error) = wrong.expect("the control survives: the kill loop would notice nothing");
    println!("round {round}: {error}");
    assert!(kills.kills > 0, "not by a kill");
}

/// A database whose processes are killed.
struct Kills {
    place: Place,
    random: Random,
    model: Model,
    is_control: bool,
    has_journals: bool,
    kills: u64,
}

impl Kills {
    fn new(random: &Random, is_control: bool) -> Self {
        Self {
            place: Place::new("kill"),
            random: random.fork(u64::from(is_control)),
            model: Model::default(),
            is_control,
            has_journals: false,
            kills: 0,
        }
    }

    /// A process that works, sometimes others that only begin to, and what they leave.
    fn round(&mut self) -> Result<(), String> {
        if self.random.below(12) == 0 {
            // A new database, which may be killed while it is made.
            self.place = Place::new("kill");
            self.model = self.model.of_new_database();
        }
        for _ in 0..self.random.below(3) {
            self.kill(Begun::WhileOpening)?;
        }
        self.kill(Begun::AtWork)?;
        self.check_files()?;
        // Readers bring nothing in order but for themselves: the next process finds it as it was left.
        let is_read_only = self.random.below(2) == 0;
        let engine = settings(self.has_journals)
            .read_only(is_read_only)
            .open(self.place.path());
        let engine = engine.map_err(|error| error.to_string())?;
        self.model.check(&engine)?;
        engine.close().map_err(|error| error.to_string())?;
        if is_read_only {
            return Ok(());
        }
        self.check_files()
    }

    /// Whether the files are whole, as `ancile check` sees it.
    fn check_files(&self) -> Result<(), String> {
        let report = ancile::check(self.place.path()).map_err(|error| error.to_string())?;
        match report.findings.first() {
            None => Ok(()),
            Some(first) => Err(format!("of {} findings: {first:?}", report.findings.len())),
        }
    }

    /// Starts a process, kills it, and takes in what it has said.
    fn kill(&mut self, when: Begun) -> Result<(), String> {
        let (said, says) = std::io::pipe().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, self.place.path())
            .env(SEED, self.random.next().to_string())
            .stdout(Stdio::null())
            .stderr(says);
        if when == Begun::WhileOpening {
            command.env(IDLE, "1");
        }
        if self.has_journals {
            command.env(JOURNAL, "1");
        }
        if self.is_control {
            command.env("ANCILE_CONTROL_WITHOUT_UNDO", "1");
        }
        let mut process = command.spawn().unwrap();
        // It holds the other end of the pipe.
        drop(command);
        let mut lines = BufReader::new(said).lines().map(Result::unwrap);
        let mut taken = Ok(());
        let micros = match when {
            Begun::WhileOpening => self.random.below(40_000),
            Begun::AtWork => {
                // What is no such line is shown with all that follows.
                let first = lines.next().unwrap_or_default();
                let begun = first == "begun";
                taken = if begun {
                    self.model.take(&first)
                } else {
                    Err(first)
                };
                if begun {
                    // On a slow machine nothing would be under way otherwise.
                    for line in lines.by_ref().take(self.random.below(40) as usize) {
                        taken = taken.and_then(|()| self.model.take(&line));
                    }
                    self.random.below(50_000)
                } else {
                    1_000_000
                }
            }
        };
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            // It may have ended itself.
            let _ = process.kill();
            process.wait().unwrap()
        });
        for line in lines {
            taken = match taken {
                Ok(()) => self.model.take(&line),
                Err(said) => Err(format!("{said}\n{line}")),
            };
        }
        let status = killer.join().unwrap();
        taken?;
        if status.code().is_some() {
            return Err(format!("the child has ended itself: {status}"));
        }
        self.kills += 1;
        Ok(())
    }

    /// Keeps the files of a database that is not as it must be.
    fn keep(&self) -> PathBuf {
        let kept = self.place.path().with_extension("kept");
        let _ = fs::rename(self.place.path(), &kept);
        kept
    }
}

/// When a process is killed.
#[derive(PartialEq, Eq)]
enum Begun {
    WhileOpening,
    AtWork,
}
