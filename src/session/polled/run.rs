//! Trying a transaction until it comes through, by the rules of blocking clients.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use super::wait::{begin, end_of, send};
use super::{AsyncSession, AsyncTransaction};
use crate::error::{Error, Result};
use crate::id::hash;
use crate::session::link::Link;
use crate::session::transaction::{
    Draft, Ending, TransactionOptions, Tries, deadline_of, ending_of, leased,
};
use crate::transaction::Proposal;

/// Runs a transaction: its body is called again after each conflict.
pub(super) async fn run<T, E: From<Error>>(
    session: &mut AsyncSession,
    options: TransactionOptions,
    mut body: impl AsyncFnMut(&mut AsyncTransaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    // Refused early, so that the body does not run for nothing.
    begin(&mut session.link).await?;
    session.link.end();
    let deadline = deadline_of(session.link.peers(), options);
    let mut lease = None;
    let mut tries = Tries::new(options);
    loop {
        let draft = Draft::new(options, deadline, lease.take());
        let mut transaction = AsyncTransaction::new(session, draft);
        let failure = match attempt(&mut body, &mut transaction).await {
            Ok(Ok(value)) => match transaction.commit().await? {
                Ending::Committed => return Ok(value),
                Ending::Conflict => None,
            },
            Ok(Err(error)) => Some(Ok(error)),
            Err(panic) => Some(Err(panic)),
        };
        if let Some(failure) = failure {
            // What went wrong over rows that were never there together has not gone wrong. A panic is
            // not hidden by an engine that can no longer tell.
            match (failure, transaction.is_consistent().await) {
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
                lease = take_lease(&mut session.link, footprint).await?;
            }
            _ => back_off(session.link.outbox.sent(), tries.made()).await,
        }
    }
}

/// Runs the body once; an outer error is its panic.
async fn attempt<T, E>(
    body: &mut impl AsyncFnMut(&mut AsyncTransaction<'_>) -> Result<T, E>,
    transaction: &mut AsyncTransaction<'_>,
) -> Result<Result<T, E>, Box<dyn Any + Send>> {
    // What makes the future may panic, too.
    let make = move || {
        let (body, transaction) = (body, transaction);
        body(transaction)
    };
    let mut future = pin!(catch_unwind(AssertUnwindSafe(make))?);
    poll_fn(|task| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// Has the rows of a footprint kept for the next try. `None` if that could not be done in time.
async fn take_lease(link: &mut Link, footprint: Proposal) -> Result<Option<Proposal>> {
    let mut sent = Some(send(link, footprint).await?);
    let proposal = end_of(link, &mut sent).await?;
    Ok(match ending_of(&proposal)? {
        Ending::Committed => Some(leased(proposal)),
        Ending::Conflict => None,
    })
}

/// Lets the executor's other tasks go first, more often after each try. `sent` differs between
/// clients that conflict with each other.
async fn back_off(sent: u64, tries: u32) {
    let chance = hash((sent << 8) ^ u64::from(tries));
    let mut rounds = chance % (1 << tries.min(8));
    poll_fn(|task| {
        if rounds == 0 {
            return Poll::Ready(());
        }
        rounds -= 1;
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
