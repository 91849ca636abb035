//! Records of any table, as values: for programs that learn at run time what a table holds.

use std::borrow::Cow;

use super::shape::{FieldKind, RecordSchema};
use super::typed::{FieldReader, FieldWriter, Key, Record};
use crate::error::Result;
use crate::table::Timestamp;

/// What a field of a record holds. A `Vec<Value>`, one for each field, is a record of any table:
/// [`Engine::create_records_with`](crate::Engine::create_records_with) and
/// [`Engine::open_records_with`](crate::Engine::open_records_with) give handles of such tables. One
/// value, or a slice of as many as the key has fields, is a key.
///
/// ```
/// use ancile::{Engine, FieldKind, RecordSchema, Value, Verbs};
///
/// let engine = Engine::builder().shards(2).arena_bytes(64 << 20).build()?;
/// let schema = RecordSchema::new()
///     .field("name", FieldKind::Text)
///     .optional("born", FieldKind::I64)
///     .key(&["name"])
///     .hash_index("born", &["born"]);
/// let people = engine.create_records_with("people", schema)?;
/// let mut session = engine.session()?;
/// let mut people = session.records(&people);
/// people.insert(&vec![Value::from("Ada"), Value::I64(1815)])?;
/// people.insert(&vec![Value::from("Charles"), Value::Nothing])?;
/// let ada = people.get(Value::from("Ada"))?.unwrap();
/// assert_eq!(ada[1], Value::I64(1815));
/// assert_eq!(people.find("born", [Value::Nothing])?, [[Value::from("Charles"), Value::Nothing]]);
/// let refused = people.insert(&vec![Value::U64(7), Value::Nothing]).unwrap_err();
/// assert_eq!(refused.to_string(), "field \"name\" holds text, and was given an unsigned integer");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// An optional field that holds nothing.
    #[default]
    Nothing,
    /// Of a field of kind [`FieldKind::U64`].
    U64(u64),
    /// Of a field of kind [`FieldKind::I64`].
    I64(i64),
    /// Of a field of kind [`FieldKind::F64`].
    F64(f64),
    /// Of a field of kind [`FieldKind::Bool`].
    Bool(bool),
    /// Of a field of kind [`FieldKind::Timestamp`].
    Timestamp(Timestamp),
    /// Of a field of kind [`FieldKind::Text`].
    Text(String),
    /// Of a field of kind [`FieldKind::Bytes`].
    Bytes(Vec<u8>),
}

impl Value {
    /// The kind of field that holds this value; none for [`Value::Nothing`], which any optional field
    /// may hold.
    pub fn kind(&self) -> Option<FieldKind> {
        Some(match self {
            Self::Nothing => return None,
            Self::U64(_) => FieldKind::U64,
            Self::I64(_) => FieldKind::I64,
            Self::F64(_) => FieldKind::F64,
            Self::Bool(_) => FieldKind::Bool,
            Self::Timestamp(_) => FieldKind::Timestamp,
            Self::Text(_) => FieldKind::Text,
            Self::Bytes(_) => FieldKind::Bytes,
        })
    }
}

macro_rules! values_of {
    ($($type:ty, |$from:ident| $value:expr;)+) => {$(
        impl From<$type> for Value {
            fn from($from: $type) -> Self {
                $value
            }
        }
    )+};
}

values_of! {
    u64, |number| Self::U64(number);
    i64, |number| Self::I64(number);
    f64, |number| Self::F64(number);
    bool, |is_so| Self::Bool(is_so);
    Timestamp, |moment| Self::Timestamp(moment);
    String, |text| Self::Text(text);
    &str, |text| Self::Text(text.to_owned());
    Cow<'_, str>, |text| Self::Text(text.into_owned());
    Vec<u8>, |bytes| Self::Bytes(bytes);
    &[u8], |bytes| Self::Bytes(bytes.to_vec());
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

/// Fields of any table: its own schema is asked, and never that of this type, which has no fields.
impl Record for Vec<Value> {
    fn schema() -> RecordSchema {
        RecordSchema::new()
    }

    fn store(&self, fields: &mut FieldWriter<'_>) {
        fields.values(self);
    }

    fn load(fields: &mut FieldReader<'_>) -> Result<Self> {
        fields.values()
    }
}

macro_rules! value_keys {
    ($($type:ty, |$key:ident| $values:expr;)+) => {$(
        impl Key for $type {
            fn put_all(&self, fields: &mut FieldWriter<'_>) {
                let $key = self;
                fields.values($values);
            }
        }
    )+};
}

value_keys! {
    Value, |key| std::slice::from_ref(key);
    &Value, |key| std::slice::from_ref(*key);
    &[Value], |key| key;
    Vec<Value>, |key| key;
    &Vec<Value>, |key| key;
}

impl<const N: usize> Key for [Value; N] {
    fn put_all(&self, fields: &mut FieldWriter<'_>) {
        fields.values(self);
    }
}

impl<const N: usize> Key for &[Value; N] {
    fn put_all(&self, fields: &mut FieldWriter<'_>) {
        fields.values(*self);
    }
}
