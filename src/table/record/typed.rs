//! How a program sees a record: a struct of its own, whose fields are written and read one by one.

use std::marker::PhantomData;

use super::image::{Image, ImageWriter, Values};
use super::part::RowValues;
use super::shape::{FieldKind, RecordSchema, Shape, Spot};
use super::value::Value;
use crate::error::{Error, Result};
use crate::limits::TEXT_BYTES_MAX;
use crate::table::Timestamp;

/// A type that holds one record: made by [`record!`](crate::record).
pub trait Record: Send + Sync + Sized + 'static {
    /// Fields, key and indexes.
    fn schema() -> RecordSchema;

    /// Writes every field, in the order of the schema.
    fn store(&self, fields: &mut FieldWriter<'_>);

    /// Reads every field, in the order of the schema.
    fn load(fields: &mut FieldReader<'_>) -> Result<Self>;
}

/// Takes the fields of a record, one after the other.
pub struct FieldWriter<'a> {
    image: ImageWriter<'a>,
    names: &'a [String],
    spots: &'a [Spot],
    /// Not all fields need be given.
    is_leading: bool,
    failure: Option<Error>,
}

impl<'a> FieldWriter<'a> {
    fn new(words: &'a mut Vec<u64>, shape: &'a Shape, spots: &'a [Spot]) -> Self {
        Self {
            image: ImageWriter::new(words, shape.cells),
            names: &shape.names,
            spots,
            is_leading: false,
            failure: None,
        }
    }

    /// Writes values, of which there must be as many as there are fields left, each of its field's
    /// kind.
    pub(super) fn values(&mut self, values: &[Value]) {
        if values.len() > self.spots.len() || !self.is_leading && values.len() < self.spots.len() {
            return self.fail(Error::FieldCount {
                given: values.len(),
                fields: self.spots.len(),
            });
        }
        for value in values {
            let Some(spot) = self.spots.first() else {
                return;
            };
            let is_fit = match value.kind() {
                None => spot.presence.is_some(),
                Some(kind) => kind == spot.kind,
            };
            if !is_fit {
                let field = self.names[spot.field].clone();
                return self.fail(Error::FieldValue {
                    field,
                    holds: spot.kind.holds(),
                    given: value.kind().map_or("nothing", FieldKind::holds),
                });
            }
            self.value(spot.kind, value);
        }
    }

    fn value(&mut self, kind: FieldKind, value: &Value) {
        match value {
            Value::Nothing => self.nothing(kind),
            Value::U64(value) => value.put(self),
            Value::I64(value) => value.put(self),
            Value::F64(value) => value.put(self),
            Value::Bool(value) => value.put(self),
            Value::Timestamp(value) => value.put(self),
            Value::Text(value) => value.put(self),
            Value::Bytes(value) => value.put(self),
        }
    }

    /// The spot of the next field, if it is of this kind.
    fn next(&mut self, kind: FieldKind) -> Option<Spot> {
        let Some((spot, rest)) = self.spots.split_first() else {
            self.fail(Error::KeyShape);
            return None;
        };
        self.spots = rest;
        if spot.kind == kind {
            Some(*spot)
        } else {
            self.fail(Error::KeyShape);
            None
        }
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    fn cell(&mut self, kind: FieldKind, value: u64) {
        if let Some(spot) = self.next(kind) {
            self.image.cell(&spot, value);
        }
    }

    fn text(&mut self, kind: FieldKind, text: &[u8]) {
        let Some(spot) = self.next(kind) else { return };
        if text.len() > TEXT_BYTES_MAX {
            self.fail(Error::TextTooLong { bytes: text.len() });
        } else {
            self.image.text(&spot, text);
        }
    }

    fn nothing(&mut self, kind: FieldKind) {
        if let Some(spot) = self.next(kind)
            && spot.presence.is_none()
        {
            self.fail(Error::KeyShape);
        }
    }

    fn end(self) -> Result<()> {
        match self.failure {
            Some(error) => Err(error),
            None if !self.spots.is_empty() && !self.is_leading => Err(Error::KeyShape),
            None => Ok(()),
        }
    }
}

/// Gives the fields of a record, one after the other.
pub struct FieldReader<'a> {
    values: Source<'a>,
    spots: &'a [Spot],
    number: usize,
}

enum Source<'a> {
    Image(Image<'a>),
    Row(RowValues<'a>),
}

impl FieldReader<'_> {
    fn next(&mut self) -> Option<Spot> {
        let (spot, rest) = self.spots.split_first()?;
        self.spots = rest;
        self.number += 1;
        Some(*spot)
    }

    /// The next field's eight bytes; `None` if it holds nothing.
    fn cell(&mut self) -> Option<u64> {
        let spot = self.next()?;
        match &self.values {
            Source::Image(image) => image.is_present(&spot).then(|| image.cell(spot.cell)),
            Source::Row(row) => row.is_present(&spot).then(|| row.cell(spot.cell)),
        }
    }

    /// The next field's bytes; `None` if it holds nothing.
    fn text<T>(&mut self, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let Some(spot) = self.next() else {
            return Ok(None);
        };
        let text = match &self.values {
            Source::Image(image) => text_of(image, &spot, look),
            Source::Row(row) => text_of(row, &spot, look),
        };
        text.map_err(|Lost| self.damaged())
    }

    /// The values of all fields that are left.
    pub(super) fn values(&mut self) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(self.spots.len());
        while let Some(spot) = self.spots.first() {
            values.push(match spot.kind {
                FieldKind::U64 => u64::take(self)?.into(),
                FieldKind::I64 => i64::take(self)?.into(),
                FieldKind::F64 => f64::take(self)?.into(),
                FieldKind::Bool => bool::take(self)?.into(),
                FieldKind::Timestamp => Timestamp::take(self)?.into(),
                FieldKind::Text => String::take(self)?.into(),
                FieldKind::Bytes => Vec::<u8>::take(self)?.into(),
            });
        }
        Ok(values)
    }

    /// What is wrong with the field that was read last.
    fn damaged(&self) -> Error {
        Error::FieldDamaged {
            number: self.number,
        }
    }
}

/// A value that a field of a record, or a part of a key, can have.
pub trait ToField {
    /// What the field holds.
    const KIND: FieldKind;
    /// Whether it may hold nothing.
    const IS_OPTIONAL: bool = false;
    /// Writes the value.
    fn put(&self, fields: &mut FieldWriter<'_>);
}

/// A value that is read from a field of a record.
pub trait FromField: ToField + Sized {
    /// Reads the value; nothing, if the field holds nothing.
    fn take(fields: &mut FieldReader<'_>) -> Result<Option<Self>>;

    /// Reads a field of this type.
    fn read(fields: &mut FieldReader<'_>) -> Result<Self> {
        Self::take(fields)?.ok_or_else(|| fields.damaged())
    }
}

macro_rules! cell_fields {
    ($($type:ty, $kind:ident, |$value:ident| $to:expr, |$cell:ident| $from:expr;)+) => {$(
        impl ToField for $type {
            const KIND: FieldKind = FieldKind::$kind;

            fn put(&self, fields: &mut FieldWriter<'_>) {
                let $value = *self;
                fields.cell(Self::KIND, $to);
            }
        }

        impl FromField for $type {
            fn take(fields: &mut FieldReader<'_>) -> Result<Option<Self>> {
                Ok(fields.cell().map(|$cell| $from))
            }
        }
    )+};
}

cell_fields! {
    u64, U64, |value| value, |cell| cell;
    i64, I64, |value| value.cast_unsigned(), |cell| cell.cast_signed();
    f64, F64, |value| value.to_bits(), |cell| f64::from_bits(cell);
    bool, Bool, |value| u64::from(value), |cell| cell != 0;
    Timestamp, Timestamp, |value| value.micros.cast_unsigned(), |cell| Timestamp { micros: cell.cast_signed() };
}

macro_rules! text_fields {
    ($($type:ty, $kind:ident, |$value:ident| $bytes:expr;)+) => {$(
        impl ToField for $type {
            const KIND: FieldKind = FieldKind::$kind;

            fn put(&self, fields: &mut FieldWriter<'_>) {
                let $value = self;
                fields.text(Self::KIND, $bytes);
            }
        }
    )+};
}

text_fields! {
    str, Text, |value| value.as_bytes();
    String, Text, |value| value.as_bytes();
    [u8], Bytes, |value| value;
    Vec<u8>, Bytes, |value| value;
}

impl FromField for String {
    fn take(fields: &mut FieldReader<'_>) -> Result<Option<Self>> {
        match fields.text(|bytes| std::str::from_utf8(bytes).map(str::to_owned))? {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(fields.damaged()),
        }
    }
}

impl FromField for Vec<u8> {
    fn take(fields: &mut FieldReader<'_>) -> Result<Option<Self>> {
        fields.text(<[u8]>::to_vec)
    }
}

impl<T: ToField + ?Sized> ToField for &T {
    const KIND: FieldKind = T::KIND;
    const IS_OPTIONAL: bool = T::IS_OPTIONAL;

    fn put(&self, fields: &mut FieldWriter<'_>) {
        T::put(self, fields);
    }
}

impl<T: ToField> ToField for Option<T> {
    const KIND: FieldKind = T::KIND;
    const IS_OPTIONAL: bool = true;

    fn put(&self, fields: &mut FieldWriter<'_>) {
        match self {
            Some(value) => value.put(fields),
            None => fields.nothing(T::KIND),
        }
    }
}

impl<T: FromField> FromField for Option<T> {
    fn take(fields: &mut FieldReader<'_>) -> Result<Option<Self>> {
        T::take(fields).map(Some)
    }
}

/// The values of a key, or of an index: one value, or a tuple of as many as it has fields.
pub trait Key: Sync {
    /// Writes the values, in the order of the fields.
    fn put_all(&self, fields: &mut FieldWriter<'_>);
}

impl<T: ToField + Sync> Key for T {
    fn put_all(&self, fields: &mut FieldWriter<'_>) {
        self.put(fields);
    }
}

macro_rules! tuple_keys {
    ($(($($name:ident $at:tt),+);)+) => {$(
        impl<$($name: ToField + Sync),+> Key for ($($name,)+) {
            fn put_all(&self, fields: &mut FieldWriter<'_>) {
                $(self.$at.put(fields);)+
            }
        }
    )+};
}

tuple_keys! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
}

/// Writing and reading records of one shape.
pub(crate) struct Codec<'a, R> {
    shape: &'a Shape,
    record: PhantomData<fn() -> R>,
}

impl<'a, R: Record> Codec<'a, R> {
    pub(crate) fn new(shape: &'a Shape) -> Self {
        Self {
            shape,
            record: PhantomData,
        }
    }

    /// Writes a record's image behind what is there; after an error nothing is.
    pub(crate) fn write(&self, record: &R, words: &mut Vec<u64>) -> Result<()> {
        let before = words.len();
        let mut fields = FieldWriter::new(words, self.shape, &self.shape.spots);
        record.store(&mut fields);
        let result = fields.end();
        if result.is_err() {
            words.truncate(before);
        }
        result
    }

    /// The record of an image.
    pub(crate) fn read(&self, image: Image<'_>) -> Result<R> {
        R::load(&mut FieldReader {
            values: Source::Image(image),
            spots: &self.shape.spots,
            number: 0,
        })
    }

    /// The record of a row.
    pub(crate) fn load(&self, row: RowValues<'_>) -> Result<R> {
        R::load(&mut FieldReader {
            values: Source::Row(row),
            spots: &self.shape.spots,
            number: 0,
        })
    }
}

/// Writes the image of what is looked for: some fields only.
pub(crate) fn write_wanted(
    shape: &Shape,
    spots: &[Spot],
    key: &(impl Key + ?Sized),
    words: &mut Vec<u64>,
) -> Result<()> {
    let before = words.len();
    let mut fields = FieldWriter::new(words, shape, spots);
    key.put_all(&mut fields);
    let result = fields.end();
    if result.is_err() {
        words.truncate(before);
    }
    result
}

/// As [`write_wanted`], of as many of the first fields as there are values; how many those are.
pub(crate) fn write_leading(
    shape: &Shape,
    spots: &[Spot],
    values: &(impl Key + ?Sized),
    words: &mut Vec<u64>,
) -> Result<usize> {
    let mut fields = FieldWriter::new(words, shape, spots);
    fields.is_leading = true;
    values.put_all(&mut fields);
    let count = spots.len() - fields.spots.len();
    fields.end().map(|()| count)
}

/// A text is not where its cell says, as it may be in a damaged file.
struct Lost;

/// Looks at the text of a field, if it holds one.
#[inline]
fn text_of<T>(
    values: &impl Values,
    spot: &Spot,
    look: impl FnOnce(&[u8]) -> T,
) -> Result<Option<T>, Lost> {
    if !values.is_present(spot) {
        return Ok(None);
    }
    values.try_text(spot.cell, look).map(Some).ok_or(Lost)
}

/// The image of a row, written behind what is there.
pub(crate) fn write_row(shape: &Shape, row: &RowValues<'_>, words: &mut Vec<u64>) {
    let mut image = ImageWriter::new(words, shape.cells);
    for spot in &shape.spots {
        if !row.is_present(spot) {
            continue;
        }
        if spot.kind.is_text() {
            let is_there = text_of(row, spot, |text| image.text(spot, text));
            if is_there.is_err() {
                image.lost(spot);
            }
        } else {
            image.cell(spot, row.cell(spot.cell));
        }
    }
}

/// Declares a struct whose fields are those of a record, and makes it a [`Record`].
///
/// Fields are `u64`, `i64`, `f64`, `bool`, [`Timestamp`], `String`, `Vec<u8>`, or an
/// `Option` of one of them. `key(..)` names the fields of the key, `hash_index name(..)`,
/// `unique_index name(..)` and `ordered_index name(..)` an index over fields, as the methods of
/// [`RecordSchema`] of the same names.
///
/// ```
/// ancile::record! {
///     /// A line of a phone book.
///     pub struct Person {
///         pub name: String,
///         pub address: String,
///         pub telephone: String,
///         pub born: Option<i64>,
///     }
///     key(name);
///     hash_index telephone(telephone);
/// }
///
/// use ancile::{Engine, Verbs};
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let people = engine.create_records::<Person>("people")?;
/// let mut session = engine.session()?;
/// let ada = Person {
///     name: "Ada".to_owned(),
///     address: "12 St James's Square".to_owned(),
///     telephone: "07886 1".to_owned(),
///     born: Some(1815),
/// };
/// let mut people = session.records(&people);
/// people.insert(&ada)?;
/// assert_eq!(people.get("Ada")?, Some(ada.clone()));
/// assert_eq!(people.find("telephone", "07886 1")?, [ada]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! record {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $kind:ty),+ $(,)?
        }
        key($($key:ident),+ $(,)?);
        $($index_kind:ident $index:ident($($index_field:ident),+ $(,)?);)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $kind),+
        }

        impl $crate::Record for $name {
            fn schema() -> $crate::RecordSchema {
                let schema = $crate::RecordSchema::new();
                $(
                    let (kind, is_optional) = (
                        <$kind as $crate::ToField>::KIND,
                        <$kind as $crate::ToField>::IS_OPTIONAL,
                    );
                    let schema = if is_optional {
                        schema.optional(stringify!($field), kind)
                    } else {
                        schema.field(stringify!($field), kind)
                    };
                )+
                // Fields that do not exist are found by the compiler.
                let _ = |record: &Self| { $(let _ = &record.$key;)+ $($(let _ = &record.$index_field;)+)* };
                schema
                    .key(&[$(stringify!($key)),+])
                    $(.$index_kind(stringify!($index), &[$(stringify!($index_field)),+]))*
            }

            fn store(&self, fields: &mut $crate::FieldWriter<'_>) {
                $($crate::ToField::put(&self.$field, fields);)+
            }

            fn load(fields: &mut $crate::FieldReader<'_>) -> $crate::Result<Self> {
                Ok(Self { $($field: $crate::FromField::read(fields)?),+ })
            }
        }
    };
}
