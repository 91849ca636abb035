//! What a table is: columns with names and kinds, keyed or not, and how many rows to expect.

use super::row::Row;
use super::width::Width;
use crate::error::TableError;
use crate::limits::{COLUMNS_MAX, NAME_BYTES_MAX};

/// What the eight bytes of a column mean. The engine stores bytes; the kind is for programs and tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// An unsigned integer, or any eight bytes.
    U64,
    /// A signed integer.
    I64,
    /// A floating-point number.
    F64,
    /// A [`Timestamp`].
    Timestamp,
}

/// A point in time: microseconds since 1970-01-01 00:00 UTC, negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Microseconds since the epoch.
    pub micros: i64,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, unique in the table.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// The shape of a table to be created.
///
/// ```
/// use ancile::{Kind, Schema};
/// let schema = Schema::new().column("owner", Kind::U64).column("balance", Kind::I64).keyed();
/// assert_eq!(schema.columns().len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    columns: Vec<Column>,
    keyed: bool,
    rows_expected: u64,
}

impl Schema {
    /// No columns yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The columns of a row type; none for `[u64; N]` and `Vec<u64>`, which name no columns.
    pub fn of<R: Row>() -> Self {
        let fields = R::fields().unwrap_or_default();
        fields.iter().fold(Self::new(), |schema, &(name, kind)| {
            schema.column(name, kind)
        })
    }

    /// `count` columns of any eight bytes, named `c0`, `c1`, ...
    pub fn cells(count: usize) -> Self {
        // One more than the largest table is as wrong as any larger number, and costs no memory.
        let count = count.min(COLUMNS_MAX + 1);
        (0..count).fold(Self::new(), |schema, number| {
            schema.column(&format!("c{number}"), Kind::U64)
        })
    }

    /// Adds a column.
    pub fn column(mut self, name: &str, kind: Kind) -> Self {
        self.columns.push(Column {
            name: name.to_owned(),
            kind,
        });
        self
    }

    /// Gives each row a [`SurrogateId`](crate::SurrogateId), unique over all shards, and an index by it:
    /// 8 bytes for the key and about 11 for the index a row.
    pub fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// Sizes the index for so many rows over all shards, so that it need not grow on the way there.
    pub fn expect_rows(mut self, rows: u64) -> Self {
        self.rows_expected = rows;
        self
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Whether rows have a surrogate id.
    pub fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// Rows expected over all shards.
    pub fn rows_expected(&self) -> u64 {
        self.rows_expected
    }

    /// Whether a table can have this name and these columns.
    pub(crate) fn check(&self, name: &str) -> Result<(), TableError> {
        check_name(name)?;
        if self.columns.is_empty() || self.columns.len() > COLUMNS_MAX {
            return Err(TableError::Columns(self.columns.len()));
        }
        let mut names = hashbrown::HashSet::new();
        for column in &self.columns {
            check_name(&column.name)?;
            if !names.insert(&column.name) {
                return Err(TableError::ColumnTwice(column.name.clone()));
            }
        }
        Ok(())
    }

    /// The width of rows of type `R` in this table, or what keeps them from fitting.
    pub(crate) fn width_of<R: Row>(&self, table: &str) -> Result<R::Width, TableError> {
        let shape = |difference| TableError::Shape {
            table: table.to_owned(),
            row: std::any::type_name::<R>().to_owned(),
            difference,
        };
        let columns = self.columns.len();
        let width = R::Width::of(columns)
            .ok_or_else(|| shape(format!("the table has {columns} columns")))?;
        for (column, &(name, kind)) in self.columns.iter().zip(R::fields().unwrap_or_default()) {
            if column.name != name || column.kind != kind {
                return Err(shape(format!(
                    "column {:?} of kind {:?} in the table is {name:?} of kind {kind:?} in the row",
                    column.name, column.kind
                )));
            }
        }
        Ok(width)
    }
}

/// Whether a table or a column can have this name.
pub(crate) fn check_name(name: &str) -> Result<(), TableError> {
    match name.len() {
        // The engine's own tables begin with this character.
        1..=NAME_BYTES_MAX if !name.starts_with('\0') => Ok(()),
        _ => Err(TableError::Name(name.chars().take(40).collect())),
    }
}
