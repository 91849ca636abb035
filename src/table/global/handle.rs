//! What a program holds of a set of globals.

use std::fmt;
use std::sync::Arc;

use super::Routing;
use crate::id::TableKey;

/// A set of globals: ordered keys of a name and subscripts, with values. Made by
/// [`Engine::globals`](crate::Engine::globals),
/// [`Engine::create_globals`](crate::Engine::create_globals) or
/// [`Engine::open_globals`](crate::Engine::open_globals), used with
/// [`Verbs::globals`](crate::Verbs::globals).
///
/// A handle is cheap to clone and may be shared by threads. After the set is dropped it finds nothing
/// ([`Error::TableGone`](crate::Error::TableGone)), even when one of the same name is created.
#[derive(Clone)]
pub struct Globals {
    key: TableKey,
    routing: Routing,
    name: Arc<str>,
}

/// What there is at a key: `$DATA` of GT.M.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Data {
    /// The node has a value.
    pub has_value: bool,
    /// There are nodes below it.
    pub has_descendants: bool,
}

impl Data {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            has_value: self.has_value | other.has_value,
            has_descendants: self.has_descendants | other.has_descendants,
        }
    }

    /// The number that GT.M says it with: 0, 1, 10 or 11.
    pub fn to_number(self) -> u8 {
        u8::from(self.has_value) + 10 * u8::from(self.has_descendants)
    }
}

impl Globals {
    pub(crate) fn new(key: TableKey, name: &str, routing: Routing) -> Self {
        Self {
            key,
            routing,
            name: name.into(),
        }
    }

    /// The name of the set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What decides the shard of a key.
    pub fn routing(&self) -> Routing {
        self.routing
    }

    pub(crate) fn key(&self) -> TableKey {
        self.key
    }
}

impl fmt::Debug for Globals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Globals")
            .field("name", &self.name)
            .field("routing", &self.routing)
            .finish()
    }
}
