//! The end mark of a dump of JSON lines: what came before it, so that a dump that was cut off is told from
//! a whole one.
//!
//! ```text
//! {"end":{"rows":{"people":2,"accounts":1},"checksum":"5f0e6a1c9b2d3344"}}
//! ```
//! Rows are counted by table; nodes of globals are rows here. The checksum is CRC-64/NVME over all lines
//! before, each with one line feed behind it. Several dumps may follow each other, each with its mark.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use anyhow::{Context, Result, bail};
use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};

/// What a dump has had so far.
pub(crate) struct Tally {
    rows: BTreeMap<String, u64>,
    digest: Digest,
    /// Whether anything came since the last end mark.
    is_open: bool,
    /// Whether there was an end mark.
    has_ended: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    end: End,
}

/// What an end mark says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    rows: BTreeMap<String, u64>,
    checksum: String,
}

impl End {
    /// The end mark that a line is, if it is one.
    pub(crate) fn of_line(text: &str) -> Option<Result<Self>> {
        let inner = text.trim_start().strip_prefix('{')?;
        inner.trim_start().strip_prefix("\"end\"")?;
        let read = serde_json::from_str::<Line>(text).map(|line| line.end);
        Some(read.context("this is no end mark of a dump"))
    }

    fn check_sum(&self, mark: &Self) -> Result<()> {
        if self.checksum == mark.checksum {
            return Ok(());
        }
        bail!(
            "the dump is not as it was written: its checksum is {}, and its end mark says {}",
            self.checksum,
            mark.checksum
        );
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            digest: Digest::new(CrcAlgorithm::Crc64Nvme),
            is_open: false,
            has_ended: false,
        }
    }

    /// Takes in what is written.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// Takes in a line that was read, however it ends; blank ones say nothing.
    pub(crate) fn line(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.digest.update(line.as_bytes());
            self.digest.update(b"\n");
            self.is_open = true;
        }
    }

    /// Notes a table, which may have no rows.
    pub(crate) fn table(&mut self, table: &str) {
        self.rows.entry(table.to_owned()).or_default();
    }

    /// Counts a row.
    pub(crate) fn row(&mut self, table: &str) {
        match self.rows.get_mut(table) {
            Some(rows) => *rows += 1,
            None => drop(self.rows.insert(table.to_owned(), 1)),
        }
    }

    /// The mark of what was taken in.
    fn end(&self) -> End {
        End {
            rows: self.rows.clone(),
            checksum: format!("{:016x}", self.digest.finalize()),
        }
    }

    /// Writes the mark.
    pub(crate) fn write(&self, out: &mut impl Write) -> Result<()> {
        serde_json::to_writer(&mut *out, &Line { end: self.end() })?;
        Ok(out.write_all(b"\n")?)
    }

    /// Compares what was taken in with what a mark says, and begins anew.
    pub(crate) fn close(&mut self, mark: &End) -> Result<()> {
        let read = std::mem::replace(self, Self::new()).end();
        self.has_ended = true;
        for table in mark.rows.keys().chain(read.rows.keys()) {
            let (said, is) = (mark.rows.get(table), read.rows.get(table));
            if said != is {
                bail!(
                    "the dump is not whole: {} rows of table {table:?} are here, and its end mark says {}",
                    is.unwrap_or(&0),
                    said.unwrap_or(&0)
                );
            }
        }
        read.check_sum(mark)
    }

    /// As [`close`](Self::close), by the checksum alone.
    fn close_uncounted(&mut self, mark: &End) -> Result<()> {
        let read = std::mem::replace(self, Self::new()).end();
        self.has_ended = true;
        read.check_sum(mark)
    }

    /// At the end of the file: whether it is that of a dump.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.is_open || !self.has_ended {
            bail!("the dump was cut off: it has no end mark");
        }
        Ok(())
    }
}

/// Reads a dump to its end, before anything of it is loaded. `progress` is told how many bytes were read.
pub(crate) fn check(input: impl BufRead, mut progress: impl FnMut(u64)) -> Result<()> {
    let (mut tally, mut bytes) = (Tally::new(), 0);
    for (line, number) in input.lines().zip(1_u64..) {
        let at = || format!("line {number}");
        let line = line.with_context(at)?;
        bytes += line.len() as u64 + 1;
        progress(bytes);
        match End::of_line(&line) {
            None => tally.line(&line),
            Some(mark) => {
                let closed = mark.and_then(|mark| tally.close_uncounted(&mark));
                closed.with_context(at)?;
            }
        }
    }
    tally.finish()
}
