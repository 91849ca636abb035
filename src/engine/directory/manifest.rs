//! The manifest: what a database is, and its tables, as JSON.
//!
//! It is replaced as a whole: written beside, waited for, renamed, and the directory waited for. So
//! whoever reads it finds the old one or the new one. A table is in it from the moment that all its
//! parts are made until before the first one goes, so a part that it does not name is left over.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{foreign, io_error};
use crate::arena::sync_directory;
use crate::engine::TableSchema;
use crate::error::OpenError;
use crate::limits::SHARDS_MAX;
use crate::table::{Kind, RecordSchema, Routing, Schema, Shape};

pub(super) const NAME: &str = "MANIFEST";
pub(super) const NEW: &str = "MANIFEST.new";

/// The version that this build writes. Another major version is refused, a later minor one is read.
const FORMAT: (u32, u32) = (1, 0);

#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(super) database: [u8; 16],
    pub(super) shards: u32,
    /// False while the shards' files are being made.
    pub(super) is_complete: bool,
    /// Its shards have journals, and the tables are noted in shard 0's memory: here they are as they
    /// were lately.
    pub(super) has_journal: bool,
    /// The longest arena that a shard has had, of a database with journals.
    pub(super) arena_bytes: u64,
    pub(super) next_serial: u32,
    pub(super) tables: Vec<StoredTable>,
}

/// A table of a database.
#[derive(Clone, Debug)]
pub(crate) struct StoredTable {
    pub(crate) name: String,
    pub(crate) serial: u32,
    pub(crate) schema: TableSchema,
    /// The number of each index.
    pub(crate) index_serials: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format_major: u32,
    format_minor: u32,
    database: String,
    shards: u32,
    complete: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    journal: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    arena_bytes: u64,
    #[serde(flatten)]
    tables: TableList,
}

/// The tables, and the number that the next one gets.
#[derive(Serialize, Deserialize)]
struct TableList {
    next_serial: u32,
    tables: Vec<TableEntry>,
}

impl Default for TableList {
    fn default() -> Self {
        Self {
            next_serial: 1,
            tables: Vec::new(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Serialize, Deserialize)]
struct TableEntry {
    name: String,
    serial: u32,
    #[serde(flatten)]
    content: ContentEntry,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ContentEntry {
    Rows {
        keyed: bool,
        rows_expected: u64,
        columns: Vec<ColumnEntry>,
    },
    Records {
        schema: RecordSchema,
        index_serials: Vec<u32>,
    },
    Globals {
        routing: RoutingEntry,
    },
}

/// What decides the shard of a key.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RoutingEntry {
    NameAndFirst,
    Prefix(u16),
    FullKey,
}

impl From<Routing> for RoutingEntry {
    fn from(routing: Routing) -> Self {
        match routing {
            Routing::NameAndFirst => Self::NameAndFirst,
            Routing::Prefix(subscripts) => Self::Prefix(subscripts),
            Routing::FullKey => Self::FullKey,
        }
    }
}

impl From<RoutingEntry> for Routing {
    fn from(entry: RoutingEntry) -> Self {
        match entry {
            RoutingEntry::NameAndFirst => Self::NameAndFirst,
            RoutingEntry::Prefix(subscripts) => Self::Prefix(subscripts),
            RoutingEntry::FullKey => Self::FullKey,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ColumnEntry {
    name: String,
    kind: Kind,
}

/// The part of every version's manifest that says which version it is.
#[derive(Deserialize)]
struct Version {
    format_major: u32,
}

impl Manifest {
    pub(super) fn new(database: [u8; 16]) -> Self {
        Self {
            database,
            shards: 0,
            is_complete: false,
            has_journal: false,
            arena_bytes: 0,
            next_serial: 1,
            tables: Vec::new(),
        }
    }

    pub(super) fn path(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    /// Reads the manifest of a directory, if it has one.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, OpenError> {
        let path = Self::path(directory);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&path, "read")(error)),
        };
        let unreadable = |error: serde_json::Error| {
            foreign(directory, &format!("its MANIFEST cannot be read: {error}"))
        };
        let version: Version = serde_json::from_str(&text).map_err(unreadable)?;
        if version.format_major != FORMAT.0 {
            return Err(OpenError::Version {
                path,
                found: version.format_major,
                reads: FORMAT.0,
            });
        }
        let document: Document = serde_json::from_str(&text).map_err(unreadable)?;
        Self::of(document)
            .map(Some)
            .map_err(|why| foreign(directory, &format!("its MANIFEST is damaged: {why}")))
    }

    fn of(document: Document) -> Result<Self, String> {
        let database = u128::from_str_radix(&document.database, 16)
            .map_err(|_| format!("{:?} is no id of a database", document.database))?;
        let shards = document.shards as usize;
        if document.complete && !(1..=SHARDS_MAX).contains(&shards) {
            return Err(format!("it names {shards} shards"));
        }
        let mut manifest = Self {
            database: database.to_le_bytes(),
            shards: document.shards,
            is_complete: document.complete,
            has_journal: document.journal,
            arena_bytes: document.arena_bytes,
            next_serial: 1,
            tables: Vec::new(),
        };
        manifest.take(document.tables)?;
        Ok(manifest)
    }

    /// Takes the tables from what [`tables_text`](Self::tables_text) has made of them.
    pub(super) fn read_tables(&mut self, text: &str) -> Result<(), String> {
        let list: TableList = serde_json::from_str(text).map_err(|error| error.to_string())?;
        self.take(list)
    }

    fn take(&mut self, list: TableList) -> Result<(), String> {
        let mut tables: Vec<StoredTable> = Vec::new();
        let mut serials = Vec::new();
        for entry in list.tables {
            let table = entry.table()?;
            let is_new = tables.iter().all(|other| other.name != table.name);
            for &serial in table.index_serials.iter().chain([&table.serial]) {
                let is_free = serial > 0 && serial < list.next_serial;
                if !is_new || !is_free || serials.contains(&serial) {
                    return Err(format!(
                        "table {:?} is there twice, or has no serial",
                        table.name
                    ));
                }
                serials.push(serial);
            }
            tables.push(table);
        }
        self.next_serial = list.next_serial;
        self.tables = tables;
        Ok(())
    }

    fn list(&self) -> TableList {
        TableList {
            next_serial: self.next_serial,
            tables: self.tables.iter().map(TableEntry::new).collect(),
        }
    }

    /// The tables, as JSON.
    pub(super) fn tables_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&self.list())
    }

    /// Replaces the manifest of a directory.
    pub(super) fn write(&self, directory: &Path) -> Result<(), io::Error> {
        let document = Document {
            format_major: FORMAT.0,
            format_minor: FORMAT.1,
            database: format!("{:032x}", u128::from_le_bytes(self.database)),
            shards: self.shards,
            complete: self.is_complete,
            journal: self.has_journal,
            arena_bytes: self.arena_bytes,
            tables: self.list(),
        };
        let text = serde_json::to_string_pretty(&document)?;
        let new = directory.join(NEW);
        let mut file = File::create(&new)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        drop(file);
        fs::rename(&new, Self::path(directory))?;
        sync_directory(directory)
    }
}

impl TableEntry {
    fn new(table: &StoredTable) -> Self {
        let content = match &table.schema {
            TableSchema::Rows(schema) => ContentEntry::Rows {
                keyed: schema.is_keyed(),
                rows_expected: schema.rows_expected(),
                columns: schema
                    .columns()
                    .iter()
                    .map(|column| ColumnEntry {
                        name: column.name.clone(),
                        kind: column.kind,
                    })
                    .collect(),
            },
            TableSchema::Records(schema) => ContentEntry::Records {
                schema: schema.clone(),
                index_serials: table.index_serials.clone(),
            },
            TableSchema::Globals(routing) => ContentEntry::Globals {
                routing: (*routing).into(),
            },
        };
        Self {
            name: table.name.clone(),
            serial: table.serial,
            content,
        }
    }

    /// The table that is described, or what is wrong with it.
    fn table(self) -> Result<StoredTable, String> {
        let (schema, index_serials) = match self.content {
            ContentEntry::Rows {
                keyed,
                rows_expected,
                columns,
            } => {
                let columns = columns.iter().fold(Schema::new(), |schema, column| {
                    schema.column(&column.name, column.kind)
                });
                let schema = columns.expect_rows(rows_expected);
                let schema = if keyed { schema.keyed() } else { schema };
                schema
                    .check(&self.name)
                    .map_err(|error| error.to_string())?;
                (TableSchema::Rows(schema), Vec::new())
            }
            ContentEntry::Records {
                schema,
                index_serials,
            } => {
                schema.check().map_err(|error| error.to_string())?;
                if index_serials.len() != Shape::new(&schema).indexes.len() {
                    return Err(format!(
                        "the indexes of {:?} are not all numbered",
                        self.name
                    ));
                }
                (TableSchema::Records(schema), index_serials)
            }
            ContentEntry::Globals { routing } => (TableSchema::Globals(routing.into()), Vec::new()),
        };
        Ok(StoredTable {
            name: self.name,
            serial: self.serial,
            schema,
            index_serials,
        })
    }
}
