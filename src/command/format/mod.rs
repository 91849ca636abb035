//! What a dump says: tables, rows and values, whatever the format of its lines.

pub(crate) mod csv;
pub(crate) mod end;
pub(crate) mod globals;
pub(crate) mod jsonl;
mod value;

use std::fmt;

use ancile::{
    Column, Engine, Field, FieldKind, IndexKind, Kind, RecordSchema, Schema, TableSchema,
};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use value::{cell_of, value_of};

/// How a dump is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line, any number of tables
    Jsonl,
    /// Comma-separated values, one table
    Csv,
}

/// What a row has beside its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    Nothing,
    /// Its key, in keyed tables of rows.
    Key(u64),
    /// Its direct id when it was dumped, in tables of rows without keys: told, and not loaded.
    Id(u64),
}

/// A table, as a dump describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) table: String,
    pub(crate) schema: TableSchema,
    /// Its columns or fields; globals have none.
    pub(crate) fields: Vec<Field>,
}

impl Layout {
    pub(crate) fn new(table: &str, schema: &TableSchema) -> Result<Self> {
        let fields = match schema {
            TableSchema::Rows(rows) => rows.columns().iter().map(field_of).collect(),
            TableSchema::Records(records) => records.fields().to_vec(),
            TableSchema::Globals(_) => Vec::new(),
            _ => bail!("table {table:?} is of a kind that this command does not know"),
        };
        Ok(Self {
            table: table.to_owned(),
            schema: schema.clone(),
            fields,
        })
    }

    /// The tables of an engine, all or some.
    pub(crate) fn of_engine(engine: &Engine, names: &[String]) -> Result<Vec<Self>> {
        let tables = engine.tables();
        if let Some(missing) = names
            .iter()
            .find(|name| tables.iter().all(|table| table.name != **name))
        {
            let known: Vec<&str> = tables.iter().map(|table| &*table.name).collect();
            bail!(
                "there is no table {missing:?}; there are: {}",
                known.join(", ")
            );
        }
        let wanted = |name: &String| names.is_empty() || names.contains(name);
        let tables = tables.iter().filter(|table| wanted(&table.name));
        tables
            .map(|table| Self::new(&table.name, &table.schema))
            .collect()
    }

    pub(crate) fn is_globals(&self) -> bool {
        matches!(self.schema, TableSchema::Globals(_))
    }

    pub(crate) fn is_keyed(&self) -> bool {
        matches!(&self.schema, TableSchema::Rows(rows) if rows.is_keyed())
    }

    /// Whether records are refused for the sake of others with another key.
    pub(crate) fn has_uniques(&self) -> bool {
        let TableSchema::Records(records) = &self.schema else {
            return false;
        };
        let mut indexes = records.indexes().iter();
        indexes.any(|index| index.kind == IndexKind::Unique)
    }

    /// The schema, as a dump has it.
    pub(crate) fn schema_json(&self) -> SchemaEntry {
        let fields = &self.fields;
        match &self.schema {
            TableSchema::Records(records) => {
                let names = |numbers: &[usize]| -> Vec<String> {
                    let names = numbers.iter().filter_map(|&number| fields.get(number));
                    names.map(|field| field.name.clone()).collect()
                };
                let indexes = records.indexes().iter().map(|index| IndexEntry {
                    name: index.name.clone(),
                    kind: index.kind,
                    fields: names(&index.fields),
                });
                SchemaEntry::Records {
                    fields: fields.clone(),
                    key: names(records.key_fields()),
                    indexes: indexes.collect(),
                }
            }
            TableSchema::Globals(routing) => SchemaEntry::Globals {
                routing: (*routing).into(),
            },
            _ => SchemaEntry::Rows {
                keyed: self.is_keyed(),
                columns: fields
                    .iter()
                    .map(|field| ColumnEntry {
                        name: field.name.clone(),
                        kind: field.kind,
                    })
                    .collect(),
            },
        }
    }

    /// The table that a dump describes.
    pub(crate) fn of_json(table: &str, entry: SchemaEntry) -> Result<Self> {
        let schema = match entry {
            SchemaEntry::Globals { routing } => TableSchema::Globals(routing.into()),
            SchemaEntry::Rows { keyed, columns } => {
                let mut schema = Schema::new();
                for column in &columns {
                    schema = schema.column(&column.name, kind_of(column)?);
                }
                TableSchema::Rows(if keyed { schema.keyed() } else { schema })
            }
            SchemaEntry::Records {
                fields,
                key,
                indexes,
            } => {
                let mut schema = RecordSchema::new();
                for field in &fields {
                    schema = if field.optional {
                        schema.optional(&field.name, field.kind)
                    } else {
                        schema.field(&field.name, field.kind)
                    };
                }
                schema = schema.key(&Vec::from_iter(key.iter().map(String::as_str)));
                for index in &indexes {
                    let fields = Vec::from_iter(index.fields.iter().map(String::as_str));
                    schema = match index.kind {
                        IndexKind::Hash => schema.hash_index(&index.name, &fields),
                        IndexKind::Unique => schema.unique_index(&index.name, &fields),
                        IndexKind::Ordered => schema.ordered_index(&index.name, &fields),
                        _ => bail!("index {:?} is of an unknown kind", index.name),
                    };
                }
                TableSchema::Records(schema)
            }
        };
        Self::new(table, &schema)
    }

    /// The number of a field.
    pub(crate) fn field(&self, name: &str) -> Result<usize> {
        let mut fields = self.fields.iter();
        fields
            .position(|field| field.name == name)
            .with_context(|| format!("table {:?} has no field {name:?}", self.table))
    }
}

/// A schema in a dump.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum SchemaEntry {
    Rows {
        keyed: bool,
        columns: Vec<ColumnEntry>,
    },
    Records {
        fields: Vec<Field>,
        key: Vec<String>,
        #[serde(default)]
        indexes: Vec<IndexEntry>,
    },
    Globals {
        routing: globals::RoutingEntry,
    },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnEntry {
    name: String,
    kind: FieldKind,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IndexEntry {
    name: String,
    kind: IndexKind,
    fields: Vec<String>,
}

fn field_of(column: &Column) -> Field {
    let kind = match column.kind {
        Kind::I64 => FieldKind::I64,
        Kind::F64 => FieldKind::F64,
        Kind::Timestamp => FieldKind::Timestamp,
        _ => FieldKind::U64,
    };
    Field {
        name: column.name.clone(),
        kind,
        optional: false,
    }
}

fn kind_of(column: &ColumnEntry) -> Result<Kind> {
    Ok(match column.kind {
        FieldKind::U64 => Kind::U64,
        FieldKind::I64 => Kind::I64,
        FieldKind::F64 => Kind::F64,
        FieldKind::Timestamp => Kind::Timestamp,
        other => bail!("column {:?} of rows cannot hold {other:?}", column.name),
    })
}

impl fmt::Display for ColumnEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of kind {:?}", self.name, self.kind)
    }
}

impl fmt::Display for IndexEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.join(", ");
        write!(f, "{:?} of kind {:?} on {fields}", self.name, self.kind)
    }
}
