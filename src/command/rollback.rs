//! `ancile rollback`: back in time.

use std::path::PathBuf;

use ancile::{Journals, Reach};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::time::{Moment, shown};
use super::{Done, print};

const LONG: &str = "\
Takes the whole database, with its list of tables, back to the end of an epoch: transactions whole, in all \
shards together. Epochs are the periods after which what was changed is on the disk; --list shows those \
that can be gone back to and when they ended, and a time stands for the newest of them that had ended by \
then. How far back a database can go is a setting of the program that uses it (retention_bytes).

What is undone goes into the file that --lost names first, and is synced: a line of JSON for each record \
of the journals, as `ancile extract` writes them. Until then nothing is changed; once the way back is \
begun it is gone to its end, if need be by the next command or program that opens the database. There is \
no way forward again: make a backup before, if in doubt.

TIME is RFC 3339 with its zone, as 2026-11-30T17:30:00Z, or @SECONDS since 1970.

Exit codes: 0 gone back (or listed), 2 cannot: out of reach, in use, or damaged. If the way back was not \
begun the database is as it was.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Go back to the end of this epoch, or of the newest one that had ended by this time
    #[arg(
        long,
        value_name = "EPOCH|TIME",
        required_unless_present = "list",
        conflicts_with = "list"
    )]
    to: Option<Moment>,
    /// Write what is undone to this file, which must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    lost: Option<PathBuf>,
    /// Only show the epochs that can be gone back to
    #[arg(long)]
    list: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RolledBack<'a> {
    path: &'a PathBuf,
    from: u64,
    to: u64,
    records_undone: u64,
    lost: &'a Option<PathBuf>,
}

/// How far back a database can go.
#[derive(Serialize)]
pub(super) struct ReachEntry {
    pub(super) oldest: u64,
    pub(super) newest: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    epochs: Vec<EpochEntry>,
}

#[derive(Serialize)]
struct EpochEntry {
    epoch: u64,
    ended: String,
}

impl ReachEntry {
    pub(super) fn new(reach: &Reach, with_epochs: bool) -> Self {
        let epochs = reach.epochs.iter().filter(|_| with_epochs);
        let epochs = epochs.map(|sealed| EpochEntry {
            epoch: sealed.epoch,
            ended: shown(sealed.time),
        });
        Self {
            oldest: reach.oldest,
            newest: reach.newest,
            epochs: epochs.collect(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let Some(to) = arguments.to else {
        return list(arguments);
    };
    let path = &arguments.path;
    let journals = Journals::open(path)?;
    let epoch = match to {
        Moment::Epoch(epoch) => epoch,
        Moment::Time(time) => {
            let reach = journals.reach()?;
            match reach.epoch_at(time) {
                Some(epoch) => epoch,
                None => bail!(
                    "no epoch within reach had ended by {}: {}",
                    shown(time),
                    told(&reach)
                ),
            }
        }
    };
    let back = journals.roll_back(epoch, arguments.lost.as_deref());
    let back = back.with_context(|| format!("{} was not taken back", path.display()))?;
    let text = if arguments.json {
        let report = RolledBack {
            path,
            from: back.from,
            to: back.to,
            records_undone: back.undone,
            lost: &arguments.lost,
        };
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        format!(
            "{}: taken back from epoch {} to {}; {} records of its journals undone\n",
            path.display(),
            back.from,
            back.to,
            back.undone
        )
    };
    print(&text)?;
    Ok(Done::Good)
}

fn list(arguments: &Arguments) -> Result<Done> {
    let reach = Journals::read_only(&arguments.path)?.reach()?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&ReachEntry::new(&reach, true))? + "\n"
    } else {
        let mut text = format!("{}\n", told(&reach));
        for sealed in &reach.epochs {
            text += &format!("{:>12}  {}\n", sealed.epoch, shown(sealed.time));
        }
        text
    };
    print(&text)?;
    Ok(Done::Good)
}

/// How far back a database can go, in a sentence.
fn told(reach: &Reach) -> String {
    let first = reach.epochs.first();
    let since = first.map_or_else(String::new, |first| {
        format!(
            ", of which epoch {} ended first, {}",
            first.epoch,
            shown(first.time)
        )
    });
    format!(
        "epochs {} to {} can be gone back to{since}",
        reach.oldest, reach.newest
    )
}
