//! The engine: steps and names are globals, spread over the shards by the whole key.
//!
//! # Streams
//! A stream is a state machine that waits for nothing: it keeps some hundred walks under way, says which
//! look-ups they want next, and goes on with the answers ([`team`]). Whoever drives streams asks
//! for the look-ups of all of them in one batch, and sets what was found out in another:
//! - `resident`: a resident task in each shard drives its share of the streams, however many those
//!   are; the shard's own keys cost no hop, and threads are as many as shards.
//! - `threads`: each stream is a thread with a session of its own.
//!
//! Every look-up, claim and update is a call of the public API that any program can make.

mod gaps;
mod team;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ancile::{Engine, EngineBuilder, Globals, Routing, Verbs};
use tempfile::TempDir;

use self::team::{Ended, Team, Terms};
use super::{Contestant, Durability, Ran, Wanted, bytes_in};
use crate::failure::Failure;
use crate::threeen1::globals::Name;
use crate::threeen1::input::Line;

/// How streams run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Streams {
    /// In the shards.
    Resident,
    /// In threads with sessions.
    Threads,
}

/// Arena of a shard: address space, not memory.
const ARENA_BYTES: u64 = 16 << 30;

/// Memory that a start comes to, about.
const BYTES_PER_START: u64 = 170;
const PREFAULT_BYTES_MAX: u64 = 1 << 30;

/// An engine of its own.
pub(super) struct Ours {
    engine: Engine,
    globals: Globals,
    streams: Streams,
    terms: Terms,
    durability: Durability,
    setting: String,
    directory: Option<PathBuf>,
    _temporary: Option<TempDir>,
}

impl Ours {
    /// An engine, and how it is set up; the database of a run that was cut off, if one is named.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn new(wanted: &Wanted) -> Result<Self, Failure> {
        let durability = wanted.durability;
        let mut settings = Engine::builder().arena_bytes(ARENA_BYTES);
        if let Some(shards) = wanted.shards {
            settings = settings.shards(shards);
        }
        let (engine, directory, temporary) = open(settings, durability, wanted)?;
        let globals = match engine.open_globals("threeen1") {
            Ok(globals) => globals,
            Err(_) => engine.create_globals("threeen1", Routing::FullKey)?,
        };
        let setting = format!(
            "{} shards, {} streams, {}",
            engine.shards(),
            match wanted.streams {
                Streams::Resident => "resident",
                Streams::Threads => "session",
            },
            match durability {
                Durability::None => "in memory".to_owned(),
                Durability::Process => "files in shared memory, with before-images".to_owned(),
                Durability::Epoch => format!(
                    "journals synced each {:?}, checkpoints with before-images",
                    wanted.epoch
                ),
                Durability::Commit => "journals synced before an update counts as done".to_owned(),
            }
        );
        Ok(Self {
            engine,
            globals,
            streams: wanted.streams,
            terms: Terms {
                spelling: wanted.spelling,
                unit: wanted.unit,
            },
            durability,
            setting,
            directory,
            _temporary: temporary,
        })
    }

    /// Closes the gaps of a run that was cut off; puts the blocks into the database, unclaimed, and
    /// an end behind them.
    fn prepare(&self, line: &Line) -> Result<(), Failure> {
        let mut session = self.engine.session()?;
        let mut globals = session.globals(&self.globals);
        gaps::close(&mut globals, &team::names("step")?, self.terms.spelling)?;
        globals.kill(&team::names("limit")?)?;
        globals.kill(&team::names("claim")?)?;
        let limits = std::iter::once(line.first - 1).chain(line.limits());
        let mut entries = Vec::new();
        for (block, end) in (0..).zip(limits) {
            entries.push((team::key_of(Name::Limit(block))?, end.to_string()));
        }
        for name in [Name::Reads, Name::Updates] {
            entries.push((team::key_of(name)?, "0".to_owned()));
        }
        globals.set_batch(&entries)?;
        // Memory comes before the clock runs, as do the blocks.
        let bytes = line.starts() * BYTES_PER_START / self.engine.shards() as u64;
        Ok(self.engine.prefault(bytes.min(PREFAULT_BYTES_MAX))?)
    }

    /// Runs the streams in the shards.
    fn run_resident(&self, streams: usize) -> Result<(Instant, Vec<Ended>), Failure> {
        let shards = self.engine.shards();
        let ready = Arc::new(AtomicUsize::new(0));
        let all = shards.min(streams);
        let mut tasks = Vec::new();
        for shard in 0..all {
            let own = streams / shards + usize::from(shard < streams % shards);
            let (ready, globals, terms) = (Arc::clone(&ready), self.globals.clone(), self.terms);
            let work = move |resident: &mut ancile::Resident<'_>| {
                let team = Team::new(terms, own);
                ready.fetch_add(1, Ordering::Release);
                while ready.load(Ordering::Acquire) < all {
                    resident.serve();
                }
                let start = Instant::now();
                Ok((start, team?.run(resident, &globals)?))
            };
            tasks.push(self.engine.spawn(shard, work)?);
        }
        let mut ended = Vec::new();
        let mut start: Option<Instant> = None;
        for task in tasks {
            let result: Result<(Instant, Ended), Failure> = task.join()?;
            let (begun, end) = result?;
            start = Some(start.map_or(begun, |start| start.max(begun)));
            ended.push(end);
        }
        start
            .map(|start| (start, ended))
            .ok_or_else(|| Failure::new("there are no streams"))
    }

    /// Runs each stream in a thread.
    fn run_threads(&self, streams: usize) -> Result<(Instant, Vec<Ended>), Failure> {
        let gate = std::sync::Barrier::new(streams + 1);
        std::thread::scope(|scope| {
            let gate = &gate;
            let threads: Vec<_> = (0..streams)
                .map(|_| {
                    scope.spawn(move || {
                        let made = self.engine.session();
                        let team = Team::new(self.terms, 1);
                        gate.wait();
                        let mut session = made?;
                        team?.run(&mut session, &self.globals)
                    })
                })
                .collect();
            gate.wait();
            let start = Instant::now();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            Ok((start, ended.collect::<Result<_, Failure>>()?))
        })
    }

    /// Runs a line on what is there.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn go_on(&self, line: &Line) -> Result<Ran, Failure> {
        self.prepare(line)?;
        let streams = line.streams as usize;
        let (start, ended) = match self.streams {
            Streams::Resident => self.run_resident(streams)?,
            Streams::Threads => self.run_threads(streams)?,
        };
        let last = ended
            .iter()
            .map(|ended| ended.finish)
            .fold(start, Instant::max);
        let mut session = self.engine.session()?;
        let mut globals = session.globals(&self.globals);
        let mut total = |name| team::number(&mut globals, name);
        let (longest, highest) = (total(Name::Result)?, total(Name::Highest)?);
        let (reads, updates) = (total(Name::Reads)?, total(Name::Updates)?);
        Ok(Ran {
            longest,
            highest,
            reads,
            updates,
            nodes: globals.count(&team::names("step")?)?,
            seconds: (last - start).as_secs_f64(),
            raw_bytes: Some(ended.iter().map(|ended| ended.bytes).sum()),
            stored_bytes: match &self.directory {
                Some(directory) if self.durability == Durability::Process => bytes_in(directory),
                // Images are those of the last checkpoint, and come to what memory holds.
                _ => Some(globals.bytes()?),
            },
        })
    }

    /// Removes all steps and names.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn clear(&self) -> Result<(), Failure> {
        let mut session = self.engine.session()?;
        let mut globals = session.globals(&self.globals);
        for name in team::NAMES {
            globals.kill(&team::names(name)?)?;
        }
        Ok(self.engine.compact()?)
    }
}

fn open(
    settings: EngineBuilder,
    durability: Durability,
    wanted: &Wanted,
) -> Result<(Engine, Option<PathBuf>, Option<TempDir>), Failure> {
    let settings = match durability {
        Durability::None => return Ok((settings.build()?, None, None)),
        Durability::Process => settings.durability(ancile::Durability::Process),
        Durability::Epoch => settings.durability(ancile::Durability::Epoch(wanted.epoch)),
        Durability::Commit => settings.durability(ancile::Durability::Commit),
    };
    if let Some(directory) = &wanted.database {
        return Ok((settings.open(directory)?, Some(directory.clone()), None));
    }
    let directory = wanted.directory(match durability {
        // Where a mapped file belongs: a disk under it would write at its own pace.
        Durability::Process => Durability::None,
        other => other,
    })?;
    let path = directory.path().to_owned();
    Ok((settings.open(&path)?, Some(path), Some(directory)))
}

impl Contestant for Ours {
    fn name(&self) -> &str {
        "Ancile"
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn setting(&self) -> &str {
        &self.setting
    }

    fn streams(&self) -> &'static str {
        match self.streams {
            Streams::Resident => "resident",
            Streams::Threads => "threads",
        }
    }

    fn run(&mut self, line: &Line) -> Result<Ran, Failure> {
        let ran = self.go_on(line)?;
        self.clear()?;
        Ok(ran)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::threeen1::oracle::Expected;
    use crate::threeen1::walk::Unit;
    use crate::threeen1::words::Spelling;

    const DATABASE: &str = "ANCILE_THREEEN1_DATABASE";

    fn wanted(database: Option<PathBuf>, streams: Streams) -> Wanted {
        Wanted {
            durability: Durability::Process,
            spelling: Spelling::Words,
            unit: Unit::Update,
            epoch: Duration::from_secs(1),
            gtm_epoch: Duration::from_secs(1),
            folder: std::env::temp_dir(),
            streams,
            shards: Some(2),
            database,
        }
    }

    fn line() -> Line {
        Line::new(1, 20_000, 5, 700).unwrap()
    }

    #[test]
    fn a_run_that_is_killed_five_times_is_finished_by_the_next() {
        if let Some(database) = std::env::var_os(DATABASE) {
            let ours = Ours::new(&wanted(Some(database.into()), Streams::Resident)).unwrap();
            println!("begun");
            ours.go_on(&line()).unwrap();
            println!("done");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        for kill in 0..5 {
            let mut process = child(&name, directory.path());
            let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
            while !lines.next().unwrap().unwrap().ends_with("begun") {}
            std::thread::sleep(Duration::from_millis(20 + 40 * kill));
            process.kill().unwrap();
            process.wait().unwrap();
        }
        let ours = Ours::new(&wanted(Some(directory.path().into()), Streams::Resident)).unwrap();
        let ran = ours.go_on(&line()).unwrap();
        let found = Expected {
            longest: ran.longest,
            highest: ran.highest,
            nodes: ran.nodes,
        };
        assert_eq!(Some(found), Expected::of(&line()));
        assert_eq!(ran.reads - ran.updates, line().starts());
        // Nothing is left to be set.
        let ran = ours.go_on(&line()).unwrap();
        assert_eq!((ran.reads, ran.updates), (line().starts(), 0));
    }

    fn child(name: &str, database: &Path) -> std::process::Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(DATABASE, database)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    #[test]
    fn integers_that_are_missing_behind_others_are_set_before_a_run() {
        for spelling in [Spelling::Words, Spelling::Digits] {
            let mut wanted = wanted(None, Streams::Resident);
            wanted.spelling = spelling;
            let ours = Ours::new(&wanted).unwrap();
            let line = Line::new(1, 30, 2, 10).unwrap();
            let whole = ours.go_on(&line).unwrap();
            let mut session = ours.engine.session().unwrap();
            let mut globals = session.globals(&ours.globals);
            // 27 takes 111 steps: some of them in a row, two apart, and the last one.
            for integer in [82, 41, 62, 5, 2] {
                let (mut keys, mut text) = (ancile::GlobalKeys::new(), Vec::new());
                let step = team::names("step").unwrap();
                team::push_key(&mut keys, &step, spelling, integer, &mut text).unwrap();
                let key = ancile::GlobalKey::from_bytes(ancile::KeyList::key(&keys, 0)).unwrap();
                assert_eq!(globals.kill(&key).unwrap(), 1);
            }
            let ran = ours.go_on(&line).unwrap();
            assert_eq!((ran.nodes, ran.updates), (whole.nodes, 0));
        }
    }

    #[test]
    fn threads_and_residents_come_to_the_same() {
        for streams in [Streams::Resident, Streams::Threads] {
            let mut ours = Ours::new(&wanted(None, streams)).unwrap();
            let line = Line::new(1, 3_000, 7, 100).unwrap();
            let ran = ours.run(&line).unwrap();
            let found = Expected {
                longest: ran.longest,
                highest: ran.highest,
                nodes: ran.nodes,
            };
            assert_eq!(Some(found), Expected::of(&line));
        }
    }
}
