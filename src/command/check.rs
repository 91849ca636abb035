//! `ancile check`: whether a database is whole.

use std::path::PathBuf;

use ancile::{CheckReport, Finding};
use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::progress::Progress;
use super::{Done, print};

const LONG: &str = "\
Reads all of a database and tells of everything that should not be so, one finding a line (shard, table, \
where, what), and a summary: extents that overlap or lie outside their file; rows that are counted \
wrong; free places that are not free, or named twice; keys that do not find their row, and rows that an \
index has not, or twice; lists of equal values that do not fit together; texts that are not where their \
row says, or that no row names. Of databases with journals it also reads every page of the images, every \
block of the journals and all that is kept of the past, against their checksums (place \"journal\"). What is \
not as it was left but takes nothing away is told as harmless. Nothing is changed; nobody may have the database open for changes \
meanwhile. Transactions that a crash has interrupted are brought to their end first, in memory.

Exit codes: 0 whole, but for what is harmless, 1 something was found, 2 cannot look: no database, in use, or a MANIFEST that \
nobody can read.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    path: &'a PathBuf,
    is_whole: bool,
    shards: usize,
    tables: Vec<Table<'a>>,
    findings: Vec<Line<'a>>,
    harmless: Vec<Line<'a>>,
    more_findings: u64,
    leftovers: u64,
}

#[derive(Serialize)]
struct Table<'a> {
    table: &'a str,
    rows: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    shard: usize,
    table: Option<&'a str>,
    place: &'a str,
    what: &'a str,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let mut progress = Progress::new("parts checked");
    let report = ancile::check_with(&arguments.path, |done, all| {
        progress.tell(|| format!("{done} of {all}"));
    });
    drop(progress);
    let report = report?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&Report::new(&arguments.path, &report))? + "\n"
    } else {
        text(&report)
    };
    print(&text)?;
    Ok(if report.is_whole() {
        Done::Good
    } else {
        Done::Found
    })
}

impl<'a> Report<'a> {
    fn new(path: &'a PathBuf, report: &'a CheckReport) -> Self {
        let tables = report.tables.iter().map(|table| Table {
            table: &table.table,
            rows: table.rows,
        });
        Self {
            path,
            is_whole: report.is_whole(),
            shards: report.shards,
            tables: tables.collect(),
            findings: report.findings.iter().map(Line::new).collect(),
            harmless: report.harmless.iter().map(Line::new).collect(),
            more_findings: report.more_findings,
            leftovers: report.leftovers,
        }
    }
}

impl<'a> Line<'a> {
    fn new(finding: &'a Finding) -> Self {
        Self {
            shard: finding.shard,
            table: finding.table.as_deref(),
            place: &finding.place,
            what: &finding.what,
        }
    }
}

fn text(report: &CheckReport) -> String {
    let mut text = findings(&report.findings);
    for line in findings(&report.harmless).lines() {
        text += &format!("harmless: {line}\n");
    }
    if report.more_findings > 0 {
        text += &format!("and {} more\n", report.more_findings);
    }
    if report.leftovers > 0 {
        text += &format!(
            "left over from a table's making or dropping, and gone when the database is opened next: {}\n",
            count(report.leftovers, "extent")
        );
    }
    let rows: u64 = report.tables.iter().map(|table| table.rows).sum();
    let found = report.findings.len() as u64 + report.more_findings;
    text + &format!(
        "{}, {}, {}: {}\n",
        count(report.shards as u64, "shard"),
        count(report.tables.len() as u64, "table"),
        count(rows, "row"),
        match found {
            0 => "whole".to_owned(),
            _ => count(found, "finding"),
        }
    )
}

/// So many of something.
fn count(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// One line for each finding.
pub(super) fn findings(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let table = finding.table.as_ref();
        let table = table.map_or_else(String::new, |table| format!("table {table:?}, "));
        let Finding {
            shard, place, what, ..
        } = finding;
        format!("shard {shard}, {table}{place}: {what}\n")
    });
    lines.collect()
}
