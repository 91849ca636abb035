//! Trying a transaction until it comes through.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::commit::{Ending, ending_of, leased, send};
use super::draft::{Tries, deadline_of};
use super::{Transaction, TransactionOptions};
use crate::error::{Error, Result};
use crate::id::hash;
use crate::session::host::Host;
use crate::session::verbs::Verbs;
use crate::transaction::Proposal;

/// Runs a transaction: its body is called again after each conflict.
pub(in crate::session) fn run<S: Verbs, T, E: From<Error>>(
    session: &mut S,
    options: TransactionOptions,
    mut body: impl FnMut(&mut Transaction<'_, S>) -> Result<T, E>,
) -> Result<T, E> {
    let deadline = deadline_of(session.port()?.0.peers(), options);
    let mut lease = None;
    let mut tries = Tries::new(options);
    loop {
        let mut transaction = Transaction::new(session, options, deadline, lease.take());
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut transaction)));
        let result = match result {
            Ok(Ok(value)) => match transaction.try_to_commit()? {
                Ending::Committed => return Ok(value),
                Ending::Conflict => None,
            },
            Ok(Err(error)) => Some(Ok(error)),
            Err(panic) => Some(Err(panic)),
        };
        if let Some(failure) = result {
            // What went wrong over rows that were never there together has not gone wrong. A panic is
            // not hidden by an engine that can no longer tell.
            match (failure, transaction.is_consistent()) {
                (_, Ok(false)) => {}
                (Ok(error), Ok(true)) => return Err(error),
                (Ok(_), Err(error)) => return Err(error.into()),
                (Err(panic), Ok(true) | Err(_)) => {
                    drop(transaction);
                    resume_unwind(panic)
                }
            }
        }
        tries.count()?;
        let footprint = tries
            .lease()
            .map(|micros| transaction.draft.footprint(micros));
        drop(transaction);
        match footprint {
            Some(footprint) if !footprint.parts.is_empty() => {
                lease = take_lease(session, footprint)?
            }
            _ => back_off(session, tries.made())?,
        }
    }
}

/// Has the rows of a footprint kept for the next try. `None` if that could not be done in time.
fn take_lease(session: &mut impl Verbs, footprint: Proposal) -> Result<Option<Proposal>> {
    let proposal = send(session, footprint)?;
    Ok(match ending_of(&proposal)? {
        Ending::Committed => Some(leased(proposal)),
        Ending::Conflict => None,
    })
}

/// Lets others go first, for longer after each try.
fn back_off(session: &mut impl Verbs, tries: u32) -> Result<()> {
    let (link, mut host) = session.port()?;
    // Not the same for two clients that conflict with each other.
    let chance = hash((link.outbox.sent() << 8) ^ u64::from(tries));
    let rounds = chance % (16 << tries.min(8));
    (0..rounds as u32).for_each(|round| host.wait_turn(round));
    Ok(())
}
