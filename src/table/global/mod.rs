//! Globals: ordered keys of any bytes, with values, in an ordered tree of each shard.
//!
//! [`handle`] is what a program holds of a set of globals, [`routing`] decides which shard has a key,
//! [`part`] is what a shard has, [`siblings`] tells where a level of keys goes on.
//!
//! # Transactions
//! Within a shard, a [`GlobalLog`] is told what was there before each change, and pages are kept free
//! for putting it back ([`part`]).

mod check;
mod handle;
mod log;
mod part;
mod routing;
mod salvage;
pub(crate) mod siblings;
mod strings;

pub use handle::{Data, Globals};
pub(crate) use log::GlobalLog;
pub(crate) use part::{GlobalPart, Span};
pub use routing::Routing;
pub(crate) use routing::hash_of as key_hash;
pub(crate) use salvage::salvage_globals;
pub(crate) use strings::Strings;

pub(crate) use crate::tree::Direction;
