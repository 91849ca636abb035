//! Code that runs in a shard as one transaction.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::request::Call;
use super::{Rows, Shard};
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::table::{Row, Table};

/// What a closure shipped to a shard works with: the shard's tables, in one transaction.
///
/// The closure's changes are visible to others only when it has returned `Ok`; after an `Err` or a
/// panic none of them has happened. It runs to its end without interruption, so it should be short:
/// everybody else's work on this shard waits for it.
pub struct Context<'a> {
    shard: &'a mut Shard,
}

impl Context<'_> {
    /// The shard.
    pub fn shard(&self) -> ShardIndex {
        self.shard.index
    }

    /// The rows of a table in this shard. Changes are part of the transaction.
    pub fn rows<R: Row>(&mut self, table: &Table<R>) -> Result<Rows<'_, R>> {
        let Shard {
            catalog,
            undo,
            index,
            shards,
            ..
        } = &mut *self.shard;
        Rows::new(
            table,
            catalog.table(table.key())?,
            Some(undo),
            *index,
            *shards,
        )
    }
}

/// A closure on its way to a shard, and its result on the way back.
pub(crate) struct Shipped<F, T> {
    state: State<F, T>,
}

enum State<F, T> {
    Waiting(F),
    Running,
    Done(Result<T>),
}

impl<F, T, E> Shipped<F, Result<T, E>>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E>,
{
    pub(crate) fn new(closure: F) -> Self {
        Self {
            state: State::Waiting(closure),
        }
    }

    /// What the closure returned, or that it panicked; once the call has run.
    pub(crate) fn into_result(self) -> Option<Result<Result<T, E>>> {
        match self.state {
            State::Done(result) => Some(result),
            State::Waiting(_) | State::Running => None,
        }
    }
}

impl<F, T, E> Call for Shipped<F, Result<T, E>>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E>,
{
    fn run(&mut self, shard: &mut Shard) {
        if let State::Waiting(closure) = std::mem::replace(&mut self.state, State::Running) {
            self.state = State::Done(shard.transact(closure));
        }
    }
}

impl Shard {
    /// Runs a closure as one transaction; an error of the outer kind is a panic of the closure.
    pub(crate) fn transact<T, E>(
        &mut self,
        closure: impl FnOnce(&mut Context<'_>) -> Result<T, E>,
    ) -> Result<Result<T, E>> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            closure(&mut Context { shard: &mut *self })
        }));
        self.operations += 1;
        let result = result.map_err(|payload| Error::Panicked {
            message: panic_message(payload),
        });
        match result {
            Ok(Ok(_)) => self.undo.commit(&mut self.catalog),
            Ok(Err(_)) | Err(_) => self.undo.roll_back(&mut self.catalog)?,
        }
        result
    }
}

/// The text of a panic. The payload may panic again when it is dropped; that ends with it.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let message = match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "of a type that is not text".to_owned(),
    };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    message
}
