//! The shape of a record: its fields, where they lie in a row, and by what it is found.
//!
//! ```text
//! row | presence 8 x (optional fields / 64) | field | field | ...      field: 8 bytes, or 16 for text
//! ```

use std::fmt;

use crate::error::TableError;
use crate::limits::{COLUMNS_MAX, INDEXES_MAX, NAME_BYTES_MAX};

/// What a field of a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FieldKind {
    /// An unsigned integer of 64 bits.
    U64,
    /// A signed integer of 64 bits.
    I64,
    /// A floating-point number of 64 bits.
    F64,
    /// True or false.
    Bool,
    /// A [`Timestamp`](crate::Timestamp).
    Timestamp,
    /// UTF-8 text of at most 16 MiB.
    Text,
    /// Any bytes, at most 16 MiB.
    Bytes,
}

impl FieldKind {
    /// Whether the field's value has a length of its own.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Bytes)
    }

    /// What such a field holds, in a sentence.
    pub(crate) fn holds(self) -> &'static str {
        match self {
            Self::U64 => "an unsigned integer",
            Self::I64 => "a signed integer",
            Self::F64 => "a floating-point number",
            Self::Bool => "true or false",
            Self::Timestamp => "a timestamp",
            Self::Text => "text",
            Self::Bytes => "bytes",
        }
    }

    /// Cells of eight bytes that the field takes in a row.
    fn cells(self) -> usize {
        if self.is_text() { 2 } else { 1 }
    }
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Field {
    /// Its name, unique in the record.
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether it may hold nothing.
    pub optional: bool,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = if self.optional { "optional " } else { "" };
        write!(f, "{:?} of kind {optional}{:?}", self.name, self.kind)
    }
}

/// How an index finds records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IndexKind {
    /// By equal values; any number of records may have the same.
    Hash,
    /// By equal values; one record over all shards has the same, unless a value is missing.
    Unique,
    /// In the order of the values, and so by equal ones; any number of records may have the same.
    Ordered,
}

impl IndexKind {
    /// Whether each shard keeps such an index of its own records.
    pub(crate) fn is_local(self) -> bool {
        self != Self::Unique
    }
}

/// An index over fields of a record.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct IndexSchema {
    /// Its name, unique in the record.
    pub name: String,
    /// How it finds records.
    pub kind: IndexKind,
    /// Numbers of its fields.
    pub fields: Vec<usize>,
}

/// The fields and indexes of records, and the fields that are their key.
///
/// ```
/// use ancile::{FieldKind, RecordSchema};
/// let schema = RecordSchema::new()
///     .field("name", FieldKind::Text)
///     .optional("born", FieldKind::Timestamp)
///     .key(&["name"])
///     .hash_index("born", &["born"]);
/// assert_eq!(schema.fields().len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecordSchema {
    fields: Vec<Field>,
    key: Vec<usize>,
    indexes: Vec<IndexSchema>,
    /// A field that a key or an index names, and that is not there.
    #[serde(skip)]
    missing: Option<String>,
}

impl RecordSchema {
    /// No fields yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    pub fn field(self, name: &str, kind: FieldKind) -> Self {
        self.add(name, kind, false)
    }

    /// Adds a field that may hold nothing.
    pub fn optional(self, name: &str, kind: FieldKind) -> Self {
        self.add(name, kind, true)
    }

    fn add(mut self, name: &str, kind: FieldKind, optional: bool) -> Self {
        self.fields.push(Field {
            name: name.to_owned(),
            kind,
            optional,
        });
        self
    }

    /// Makes these fields, added before, the key: at most one record has the same values of them, over
    /// all shards, and it lives in the shard that they decide.
    pub fn key(mut self, fields: &[&str]) -> Self {
        self.key = self.numbers(fields);
        self
    }

    /// Adds an index that finds records by equal values of these fields, added before.
    ///
    /// It is kept beside the records of each shard, so an insert stays in its shard, and a search asks
    /// every shard.
    pub fn hash_index(self, name: &str, fields: &[&str]) -> Self {
        self.index(name, IndexKind::Hash, fields)
    }

    /// Adds an index that finds the one record with these values of these fields, added before; a
    /// second one is refused ([`Error::DuplicateValue`](crate::Error::DuplicateValue)). Records that
    /// miss one of the values are not in it, and there may be any number of them.
    ///
    /// Its entries live in the shards that the values decide, so a change of a record is a transaction
    /// over its own shard and that of each such index, some five times as dear as one in its own shard
    /// alone; a search asks two shards, one after the other. Code in a shard cannot change such records.
    pub fn unique_index(self, name: &str, fields: &[&str]) -> Self {
        self.index(name, IndexKind::Unique, fields)
    }

    /// Adds an index that finds records by the values of these fields, added before, in their order:
    /// also by those of the first ones only, by ranges, and by what a text begins with.
    ///
    /// Records are in the order of the first field, those with the same value of it in the order of the
    /// second, and so on. Numbers and timestamps have their own order, `-NaN` and `NaN` before and behind
    /// all other `f64`, and `-0.0` before `0.0`; `false` comes before `true`; texts and bytes are
    /// compared byte by byte; nothing comes before every value.
    ///
    /// It is kept beside the records of each shard, in a tree, so an insert stays in its shard, and a
    /// search asks every shard. As by hash indexes, sessions and residents find by it what is committed, and
    /// code in a shard ([`Context::records`](crate::Context::records)) also what it has changed itself;
    /// transactions over shards find records by their keys and by unique indexes only. A record whose values take more than
    /// [`INDEXED_BYTES_MAX`](crate::INDEXED_BYTES_MAX) bytes is refused
    /// ([`Error::IndexedTooLong`](crate::Error::IndexedTooLong)): a text takes its length, two bytes,
    /// and one more for each byte 0; other fields take eight bytes, `bool` one; an optional field takes
    /// one more.
    pub fn ordered_index(self, name: &str, fields: &[&str]) -> Self {
        self.index(name, IndexKind::Ordered, fields)
    }

    fn index(mut self, name: &str, kind: IndexKind, fields: &[&str]) -> Self {
        let fields = self.numbers(fields);
        self.indexes.push(IndexSchema {
            name: name.to_owned(),
            kind,
            fields,
        });
        self
    }

    /// The records that make up a unique index: its values, and the key of the record that has them.
    pub(crate) fn entries_of(&self, index: &IndexSchema) -> Self {
        let mut schema = Self::new();
        for &field in &index.fields {
            let name = format!("value {}", schema.fields.len());
            schema = schema.field(&name, self.fields[field].kind);
        }
        let names: Vec<String> = schema
            .fields
            .iter()
            .map(|field| field.name.clone())
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for &field in &self.key {
            let Field { kind, optional, .. } = self.fields[field];
            let name = format!("key {}", schema.fields.len());
            schema = schema.add(&name, kind, optional);
        }
        schema.key(&names)
    }

    fn numbers(&mut self, names: &[&str]) -> Vec<usize> {
        let mut numbers = Vec::new();
        for name in names {
            match self.fields.iter().position(|field| field.name == *name) {
                Some(number) => numbers.push(number),
                None => self.missing = Some((*name).to_owned()),
            }
        }
        numbers
    }

    /// The fields, in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Numbers of the fields of the key.
    pub fn key_fields(&self) -> &[usize] {
        &self.key
    }

    /// The indexes, in order.
    pub fn indexes(&self) -> &[IndexSchema] {
        &self.indexes
    }

    /// What differs first between these records and others.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        for (number, field) in self.fields.iter().enumerate() {
            match other.fields.get(number) {
                None => return Some(format!("field {:?} of the table is missing", field.name)),
                Some(found) if found != field => {
                    return Some(format!(
                        "field {number} is {field} in the table and {found} here"
                    ));
                }
                Some(_) => {}
            }
        }
        if let Some(field) = other.fields.get(self.fields.len()) {
            return Some(format!("the table has no field {:?}", field.name));
        }
        if self.key != other.key {
            return Some("the key has other fields".to_owned());
        }
        for index in &self.indexes {
            if !other.indexes.contains(index) {
                return Some(format!(
                    "index {:?} of the table is missing, or other",
                    index.name
                ));
            }
        }
        let mut indexes = other.indexes.iter();
        let new = indexes.find(|index| !self.indexes.contains(index))?;
        Some(format!("the table has no index {:?}", new.name))
    }

    /// What keeps a table of these records from becoming one of others: see
    /// [`Engine::alter_records`](crate::Engine::alter_records).
    pub(crate) fn hindrance(&self, other: &Self) -> Option<String> {
        let prefix = Self {
            fields: other
                .fields
                .iter()
                .take(self.fields.len())
                .cloned()
                .collect(),
            indexes: self.indexes.clone(),
            ..other.clone()
        };
        self.difference(&prefix)
    }

    /// Takes the further fields of another schema, of which this one is a beginning.
    pub(crate) fn take_fields(&mut self, other: &Self) {
        let further = other.fields.iter().skip(self.fields.len());
        self.fields.extend(further.cloned());
    }

    /// Whether another schema is this one with one more index.
    pub(crate) fn is_all_but_last_of(&self, other: &Self) -> bool {
        let indexes = other.indexes.split_last().map(|(_, indexes)| indexes);
        (&self.fields, &self.key) == (&other.fields, &other.key) && indexes == Some(&self.indexes)
    }

    /// Adds an index.
    pub(crate) fn push_index(&mut self, index: IndexSchema) {
        self.indexes.push(index);
    }

    /// Takes an index away; the number it had among those that shards keep.
    pub(crate) fn remove_index(&mut self, index: &IndexSchema) -> Option<usize> {
        let at = self.indexes.iter().position(|other| other == index)?;
        let before = self.indexes[..at].iter();
        let number = before.filter(|index| index.kind.is_local()).count();
        self.indexes.remove(at);
        Some(number)
    }

    /// Whether a table can hold such records.
    pub(crate) fn check(&self) -> Result<(), TableError> {
        let names = self.fields.iter().map(|field| &field.name);
        let names = names.chain(self.indexes.iter().map(|index| &index.name));
        for name in names {
            if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
                return Err(TableError::Name(name.chars().take(40).collect()));
            }
        }
        if let Some(missing) = &self.missing {
            return Err(TableError::FieldMissing(missing.clone()));
        }
        let cells = Shape::new(self).cells;
        if self.fields.is_empty() || cells > COLUMNS_MAX {
            return Err(TableError::Columns(cells));
        }
        if self.key.is_empty() {
            return Err(TableError::NoKey);
        }
        if self.indexes.len() > INDEXES_MAX {
            return Err(TableError::Indexes(self.indexes.len()));
        }
        let twice = |mut names: Vec<&String>| {
            names.sort_unstable();
            let mut pairs = names.windows(2);
            pairs
                .find(|pair| pair[0] == pair[1])
                .map(|pair| pair[0].clone())
        };
        let fields = twice(self.fields.iter().map(|field| &field.name).collect());
        let indexes = twice(self.indexes.iter().map(|index| &index.name).collect());
        if let Some(name) = fields.or(indexes) {
            return Err(TableError::ColumnTwice(name));
        }
        for fields in self
            .indexes
            .iter()
            .map(|index| &index.fields)
            .chain([&self.key])
        {
            if fields.is_empty() || fields.iter().any(|&field| field >= self.fields.len()) {
                return Err(TableError::FieldMissing(String::new()));
            }
        }
        Ok(())
    }
}

/// Where a field lies in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Which field of the record it is.
    pub(crate) field: usize,
    pub(crate) kind: FieldKind,
    pub(crate) cell: usize,
    /// Cell and bit that say whether it holds anything.
    pub(crate) presence: Option<(usize, u32)>,
}

/// A record schema, laid out.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Names of the fields.
    pub(crate) names: Vec<String>,
    pub(crate) spots: Vec<Spot>,
    /// Cells of a row.
    pub(crate) cells: usize,
    /// The first cells of the text fields.
    pub(crate) texts: Vec<usize>,
    pub(crate) key: Vec<Spot>,
    /// The fields of the indexes that each shard keeps of its own records.
    pub(crate) indexes: Vec<Vec<Spot>>,
    /// Names and kinds of these indexes.
    pub(crate) index_kinds: Vec<(String, IndexKind)>,
    /// The fields of the unique indexes, which are tables of their own.
    pub(crate) uniques: Vec<Vec<Spot>>,
}

impl Shape {
    pub(crate) fn new(schema: &RecordSchema) -> Self {
        let optional = schema.fields.iter().filter(|field| field.optional).count();
        let mut cell = optional.div_ceil(64);
        let mut bit = 0;
        let mut spots = Vec::new();
        for (number, field) in schema.fields.iter().enumerate() {
            let presence = field.optional.then(|| {
                bit += 1;
                ((bit - 1) / 64, (bit as u32 - 1) % 64)
            });
            spots.push(Spot {
                field: number,
                kind: field.kind,
                cell,
                presence,
            });
            cell += field.kind.cells();
        }
        let some = |numbers: &Vec<usize>| -> Vec<Spot> {
            let spots = numbers.iter().filter_map(|&number| spots.get(number));
            spots.copied().collect()
        };
        let texts = spots.iter().filter(|spot| spot.kind.is_text());
        let (local, unique): (Vec<_>, Vec<_>) = schema
            .indexes
            .iter()
            .partition(|index| index.kind.is_local());
        let spots_of = |indexes: &[&IndexSchema]| {
            let fields = indexes.iter().map(|index| some(&index.fields));
            fields.collect()
        };
        Self {
            names: schema
                .fields
                .iter()
                .map(|field| field.name.clone())
                .collect(),
            cells: cell,
            texts: texts.map(|spot| spot.cell).collect(),
            key: some(&schema.key),
            indexes: spots_of(&local),
            index_kinds: local
                .iter()
                .map(|index| (index.name.clone(), index.kind))
                .collect(),
            uniques: spots_of(&unique),
            spots,
        }
    }
}
