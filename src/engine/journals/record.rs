//! A record of a journal, in the words of tables.

use std::fmt::{self, Display, Write as _};

use serde::{Serialize, Serializer};

use crate::id::ShardIndex;

/// A range of a shard's memory that was changed, with its new content. Shown as a line of JSON:
///
/// ```text
/// {"shard":0,"epoch":17,"first":true,"table":"accounts","part":"rows","row":7,"offset":2097208,"bytes":"6400000000000000"}
/// ```
/// `bytes` are hexadecimal. Numbers of a row's columns are little-endian, behind a header of 8 bytes, and
/// the key, in tables with keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JournalRecord<'r> {
    /// The shard.
    pub shard: ShardIndex,
    /// The epoch in which it was changed.
    pub epoch: u64,
    /// Whether a unit of change begins with it: those up to the next such record happened together, as far
    /// as this shard is concerned.
    #[serde(rename = "first")]
    pub is_first: bool,
    /// The table that the memory belongs to, if it is known.
    pub table: Option<&'r str>,
    /// What the memory is used for.
    pub part: JournalPart,
    /// Of rows, and of records without their longer texts: the number of the place in the shard where the
    /// change begins.
    pub row: Option<u64>,
    /// Where in the shard's memory it is.
    pub offset: u64,
    /// The new content.
    #[serde(serialize_with = "as_hex")]
    pub bytes: &'r [u8],
}

/// What a shard's memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JournalPart {
    /// Rows, or records without their longer texts.
    Rows,
    /// The list of free places for rows.
    FreeRows,
    /// An index.
    Index,
    /// An ordered index.
    Tree,
    /// Longer texts.
    Texts,
    /// A table's counts.
    Heads,
    /// What is kept of transactions under way.
    Transactions,
    /// The list of tables.
    Tables,
    /// What memory is used for, and the shard's own head.
    Memory,
    /// Memory that is not in use, at the time that it was looked at.
    Unused,
}

impl Display for JournalRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&line)
    }
}

fn as_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    serializer.serialize_str(&text)
}
