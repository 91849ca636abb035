//! Records: rows with texts, found by their key and by indexes.
//!
//! [`shape`] says what a record is and where its fields lie; [`image`] is a record on its way;
//! [`part`] keeps the records of one shard, their longer texts in [`text`], their indexes in [`secondary`],
//! those with the same value of one in [`links`], or in their [`order`]. They are changed at once ([`change`]) or in two steps, with a decision
//! between them ([`proposed`]).

mod change;
mod growth;
mod handle;
mod image;
mod links;
mod order;
mod part;
mod proposed;
mod secondary;
mod shape;
mod text;
mod typed;
mod value;
mod watch;

pub use handle::Records;
pub(crate) use handle::{Entries, IndexPlace};
pub(crate) use image::{Image, Values, are_equal, hash_of};
pub use order::KeyBounds;
pub(crate) use order::KeySpan;
pub(crate) use part::{RecordPart, RecordShape, salvage_records};
pub(crate) use shape::Shape;
pub use shape::{Field, FieldKind, IndexKind, IndexSchema, RecordSchema};
pub(crate) use typed::{Codec, write_row, write_wanted};
pub use typed::{FieldReader, FieldWriter, FromField, Key, Record, ToField};
pub use value::Value;
