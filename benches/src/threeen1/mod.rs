//! The bench `threeen1`: the 3n+1 benchmark of K. S. Bhaskar (version 2, 2010), as GT.M runs it.
//!
//! For the integers of a range, find the longest sequence of n/2 (n even) or 3n+1 (n odd) that leads
//! to 1, and the highest integer met. All that streams know of each other is in the database: which
//! blocks of the range are claimed, how many steps every integer is away from 1, the longest
//! sequence so far. A run of a million integers is 2.2 million updates and 3.2 million look-ups, by
//! keys of 48 bytes on average.
//!
//! # Parts
//! [`input`] reads the lines, [`words`] spells numbers; [`globals`] is what a store has to offer,
//! [`walk`] what a stream does with it, [`threads`] how streams run in one process; [`contestants`]
//! has the stores; [`oracle`] knows what must come out, and ends the run when something else does.
//!
//! # Fairness
//! Contestants take turns, round by round; the median round counts, the fastest stands beside.
//! Every update is one of its own, as in the original, or every path for all (`--transaction path`).
//! Each contestant has the durability that comes nearest to the one asked for, and says which. GT.M
//! has the 5,000 buffers of the published runs (20 MB); all others may hold everything in memory.

pub mod contestants;
pub mod globals;
pub mod input;
pub mod oracle;
pub mod output;
pub mod published;
pub mod threads;
pub mod walk;
pub mod words;

use std::env;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::contestants::{Choice, Contestant, Durability, Ran, Streams, Wanted};
use self::input::Line;
use self::oracle::Expected;
use self::output::Cell;
use self::walk::Unit;
use self::words::Spelling;
use crate::failure::Failure;
use crate::line;
use crate::machine::{self, Machine};
use crate::report::{Journal, progress};

/// Options of `threeen1`. Lines of input `first last streams [block]` come from standard input.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Stores to compare; those that are built in if not given.
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<Choice>,
    /// What is to survive; a store without such a setting takes the nearest it has.
    #[arg(long, value_enum, default_value_t = Durability::Epoch)]
    pub durability: Durability,
    /// What one transaction is.
    #[arg(long, value_enum, default_value_t = Unit::Update)]
    pub transaction: Unit,
    /// Store numbers as decimal digits, not as words.
    #[arg(long)]
    pub plain: bool,
    /// How often every contestant runs every line.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds of an epoch, where the durability is `epoch`.
    #[arg(long, default_value_t = 1.0)]
    pub epoch_seconds: f64,
    /// Seconds of an epoch of GT.M: its own default.
    #[arg(long, default_value_t = 300)]
    pub gtm_epoch_seconds: u64,
    /// How the engine's streams run.
    #[arg(long, value_enum, default_value_t = Streams::Resident)]
    pub streams: Streams,
    /// Shards of the engine; one a processor if not given.
    #[arg(long)]
    pub shards: Option<usize>,
    /// Directory of the engine's database, which is made if it is not there. What a run that was cut
    /// off has left there is taken as partial results.
    #[arg(long)]
    pub database: Option<PathBuf>,
    /// Folder for the directories of databases; that of the system for temporary files if not given.
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// File for one JSON line a contestant and line.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Small ranges instead of standard input, no figures.
    #[arg(long)]
    pub smoke: bool,
}

/// Runs the bench.
///
/// # Errors
/// Wrong input, wrong results, or what keeps a store from being made or from going on.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.smoke {
        return smoke(options);
    }
    machine::refuse_debug()?;
    let lines = input::read(io::stdin().lock())?;
    let wanted = options.wanted()?;
    let mut contestants = options.contestants(&wanted)?;
    let machine = Machine::observe();
    println!("{}", machine.describe());
    println!("{}", machine::describe_line(line::round_trip().as_ref()));
    println!(
        "numbers as {}, one transaction for every {}, databases in {}, {} rounds",
        wanted.spelling.name(),
        wanted.unit.name(),
        wanted.folder.display(),
        options.rounds
    );
    for contestant in &contestants {
        let durability = contestant.durability().name();
        println!(
            "  {}, {durability}: {}",
            contestant.name(),
            contestant.setting()
        );
    }
    let mut journal = Journal::create(options.json.as_deref())?;
    for line in &lines {
        let trip = line::round_trip().map(|trip| trip.median);
        let measured = measure(&mut contestants, line, options.rounds.max(1))?;
        let mut cells = Vec::new();
        for (contestant, rounds) in contestants.iter().zip(&measured) {
            let mut cell = Cell::new(contestant.as_ref(), line, &wanted, &machine, rounds);
            cell.line_round_trip_ns = trip;
            journal.write(&cell)?;
            cells.push(cell);
        }
        print!("\n{}", output::table(line, &cells));
    }
    Ok(())
}

/// Runs small ranges once, with everything that is checked of large ones.
fn smoke(options: &Options) -> Result<(), Failure> {
    let wanted = options.wanted()?;
    let mut contestants = options.contestants(&wanted)?;
    // A commit that waits for a disk takes milliseconds.
    let last = match wanted.durability {
        Durability::Commit => 30,
        _ => 1_000,
    };
    let lines = [(1, 10, 4, 2), (1, last, 4, 50), (7, last, 3, 0)];
    for (first, last, streams, block) in lines {
        let line = Line::new(first, last, streams, block)?;
        measure(&mut contestants, &line, 1)?;
    }
    println!("{} stores agree with the oracle", contestants.len());
    Ok(())
}

/// Lets contestants take turns at a line, and checks every run.
fn measure(
    contestants: &mut [Box<dyn Contestant>],
    line: &Line,
    rounds: usize,
) -> Result<Vec<Vec<Ran>>, Failure> {
    let expected = Expected::of(line);
    let mut measured = vec![Vec::new(); contestants.len()];
    let bar = progress((contestants.len() * rounds) as u64);
    for _ in 0..rounds {
        for (contestant, measured) in contestants.iter_mut().zip(&mut measured) {
            let name = contestant.name().to_owned();
            bar.set_message(format!("{line}, {name}"));
            let ran = contestant.run(line).and_then(|ran| {
                oracle::check(line, expected.as_ref(), &ran)?;
                Ok(ran)
            });
            let ran = ran.map_err(|failure| Failure::new(format!("{name}: {failure}")))?;
            measured.push(ran);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

impl Options {
    fn wanted(&self) -> Result<Wanted, Failure> {
        let epoch = Duration::try_from_secs_f64(self.epoch_seconds)
            .ok()
            .filter(|epoch| !epoch.is_zero())
            .ok_or_else(|| Failure::new("--epoch-seconds must be above 0"))?;
        let folder = self.folder.clone().unwrap_or_else(env::temp_dir);
        let folder = folder
            .canonicalize()
            .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        Ok(Wanted {
            durability: self.durability,
            spelling: match self.plain {
                true => Spelling::Digits,
                false => Spelling::Words,
            },
            unit: self.transaction,
            epoch,
            gtm_epoch: Duration::from_secs(self.gtm_epoch_seconds),
            folder,
            streams: self.streams,
            shards: self.shards,
            database: self.database.clone(),
        })
    }

    fn contestants(&self, wanted: &Wanted) -> Result<Vec<Box<dyn Contestant>>, Failure> {
        let choices = match self.peers.is_empty() {
            true => &Choice::BUILT_IN[..],
            false => &self.peers[..],
        };
        let open = |choice: &Choice| contestants::open(*choice, wanted);
        choices.iter().map(open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::contestants::Memory;
    use super::globals::{Globals, Name, Stream};
    use super::threads::{self, Terms};
    use super::walk::Walk;
    use super::*;

    const TERMS: Terms = Terms {
        spelling: Spelling::Words,
        unit: Unit::Update,
        epoch: None,
    };

    #[test]
    fn a_store_holds_words_under_words() {
        let memory = Memory::default();
        threads::run(&memory, &Line::new(1, 10, 2, 0).unwrap(), &TERMS).unwrap();
        let mut stream = memory.stream().unwrap();
        let mut steps = |key: &str| stream.get(key.as_bytes()).unwrap();
        assert_eq!(steps("eins eins").unwrap(), "eins quattro".as_bytes());
        assert_eq!(steps("deux").unwrap(), "eins".as_bytes());
        assert_eq!(steps("eins"), None, "1 is never stored");
    }

    #[test]
    fn a_run_that_was_cut_off_anywhere_is_finished_by_the_next() {
        let line = Line::new(1, 300, 3, 7).unwrap();
        let expected = Expected::of(&line).unwrap();
        for cut in [0, 1, 26, 27, 28, 150, 299] {
            let memory = Memory::default();
            let mut stream = memory.stream().unwrap();
            let mut walk = Walk::new(TERMS.spelling, TERMS.unit);
            for start in 1..=cut {
                walk.from(&mut stream, start).unwrap();
            }
            // Counts of a stream that had finished, claims of those that had not.
            stream.add_counts(walk.counts()).unwrap();
            for block in 0..200 {
                stream.increment(Name::Claim(block)).unwrap();
                stream.increment(Name::Limit(block)).unwrap();
            }
            let ran = threads::run(&memory, &line, &TERMS).unwrap();
            let found = Expected {
                longest: ran.longest,
                highest: ran.highest,
                nodes: ran.nodes,
            };
            assert_eq!(found, expected, "cut off after {cut}");
            assert_eq!(ran.reads - ran.updates, 300);
        }
    }

    #[test]
    fn a_value_that_is_no_number_ends_the_run_with_a_sentence() {
        let memory = Memory::default();
        memory.stream().unwrap().set(b"deux", b"ein").unwrap();
        let line = Line::new(1, 100, 4, 5).unwrap();
        let failure = threads::run(&memory, &line, &TERMS).unwrap_err();
        assert!(failure.to_string().contains("no number"));
    }
}
