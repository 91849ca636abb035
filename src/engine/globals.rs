//! Sets of globals: made, opened.

use super::Engine;
use super::registry::TableSchema;
use crate::error::TableError;
use crate::table::{Globals, Routing, check_name};

/// The set that [`Engine::globals`] gives.
const DEFAULT: &str = "globals";

impl Engine {
    /// The set of globals named `globals`, which is made at its first use, routed by name and first
    /// subscript.
    pub fn globals(&self) -> Result<Globals, TableError> {
        match self.open_globals(DEFAULT) {
            Err(TableError::Missing(_)) => {}
            opened => return opened,
        }
        match self.create_globals(DEFAULT, Routing::default()) {
            // Somebody else was faster.
            Err(TableError::Exists(_)) => self.open_globals(DEFAULT),
            created => created,
        }
    }

    /// Creates a set of globals in every shard. Names of sets are those of tables; names within a set
    /// are its own.
    pub fn create_globals(&self, name: &str, routing: Routing) -> Result<Globals, TableError> {
        self.check_usable()?;
        check_name(name)?;
        let key = self.create(name, TableSchema::Globals(routing), 0)?;
        Ok(Globals::new(key, name, routing))
    }

    /// Opens a set of globals that exists; its routing is what it was created with.
    pub fn open_globals(&self, name: &str) -> Result<Globals, TableError> {
        match self.registry.find(name)? {
            (key, TableSchema::Globals(routing)) => Ok(Globals::new(key, name, routing)),
            (_, TableSchema::Rows(_) | TableSchema::Records(_)) => Err(TableError::Shape {
                table: name.to_owned(),
                row: "globals".to_owned(),
                difference: "it is a table".to_owned(),
            }),
        }
    }
}
