//! Clients whose calls are futures: polled only when they were woken, and dropped at any moment.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::history::{Draft, Fate, Kind, columns_of, row_of, value_of};
use super::scripts::{Key, Scene, expect_failure, name_of, name_of_key};
use super::strand::Turns;
use crate::error::Error;
use crate::session::{AsyncSession, AsyncTransaction};
use crate::table::Compared;
use crate::table::watch;

/// Whether a task is to be polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a future when it is woken, at most so often; `None` if it was dropped before its end.
fn drive<T>(turns: &Turns<'_>, polls: u64, future: impl Future<Output = T>) -> Option<T> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut task = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut polls = polls;
    loop {
        if woken.0.swap(false, Ordering::Relaxed) {
            if let Poll::Ready(value) = future.as_mut().poll(&mut task) {
                return Some(value);
            }
            if polls == 0 {
                return None;
            }
            polls -= 1;
        }
        turns.pass();
    }
}

/// A client's life. What it has sent when it is dropped may happen, so after that it does no more.
pub(super) fn live(scene: &Scene, turns: &Turns<'_>, rounds: u64) {
    let mut session = turns.async_session();
    let _ = (0..rounds).all(|_| {
        if scene.one_in(3) {
            single(scene, turns, &mut session)
        } else {
            transact(scene, turns, &mut session)
        }
    });
}

/// How often a future is polled before it is dropped.
fn polls(scene: &Scene) -> u64 {
    if scene.one_in(6) {
        scene.choices().below(12)
    } else {
        u64::MAX
    }
}

fn transact(scene: &Scene, turns: &Turns<'_>, session: &mut AsyncSession) -> bool {
    let (options, kind) = scene.options();
    let mut node = None;
    let body = async |transaction: &mut AsyncTransaction<'_>| {
        if let Some(node) = node {
            scene.book.end(node, Fate::Failed);
        }
        let number = scene.book.begin(kind);
        node = Some(number);
        let mut draft = Draft::new(kind);
        for _ in 0..1 + scene.choices().below(scene.steps_max) {
            match step(scene, transaction, &mut draft).await {
                Ok(()) | Err(Error::ReadOnly) => {}
                Err(error) => return Err(error),
            }
            if scene.one_in(4) {
                leave().await;
            }
        }
        scene.book.send(number, &draft);
        if scene.one_in(20) {
            return Err(Error::NotKeyed);
        }
        Ok(())
    };
    let result = drive(turns, polls(scene), session.transaction_with(options, body));
    let fate = match &result {
        None => {
            scene.count(|counts| counts.broken_off += 1);
            return false;
        }
        Some(Ok(())) => Fate::Committed,
        Some(Err(error)) => {
            expect_failure(error);
            Fate::Failed
        }
    };
    if let Some(node) = node {
        scene.book.end(node, fate);
    }
    scene.count(|counts| counts.commits += u64::from(fate == Fate::Committed));
    true
}

/// Lets others go on.
async fn leave() {
    let mut has_left = false;
    poll_fn(|task| {
        if std::mem::replace(&mut has_left, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn step(
    scene: &Scene,
    transaction: &mut AsyncTransaction<'_>,
    draft: &mut Draft,
) -> Result<(), Error> {
    let Key { table, key } = scene.any_key();
    let row = name_of_key(*key);
    let value = scene.book.new_value();
    let from = watch::moment();
    match scene.choices().below(7) {
        0 => {
            let was_there = transaction.upsert(table, *key, &row_of(value)).await?;
            draft.made(row, was_there, Some(value), true);
        }
        1 => {
            if transaction.delete(table, *key).await? {
                draft.made(row, true, None, false);
            }
        }
        2 => {
            let id = transaction.insert(&scene.plain, &row_of(value)).await?;
            draft.made(name_of(id), false, Some(value), true);
            scene.places.borrow_mut().push(id);
        }
        3 => {
            let Some(id) = scene.any_place() else {
                return Ok(());
            };
            let columns = columns_of(value);
            if transaction
                .update_columns(&scene.plain, id, &columns)
                .await?
            {
                draft.made(name_of(id), true, Some(value), false);
            }
        }
        4 => {
            let seen = transaction.select(table, *key).await?.map(value_of);
            draft.saw(row, seen, from);
            let Some(expected) = seen else { return Ok(()) };
            let own = draft.own(row);
            let from = watch::moment();
            let columns = columns_of(value);
            let condition = [(0, expected)];
            let compared = transaction.update_if(table, *key, &condition, &columns);
            if compared.await? == Compared::Updated {
                if own.is_none() {
                    draft.relies_on(row, expected, from);
                }
                draft.made(row, true, Some(value), false);
            }
        }
        _ => {
            let seen = transaction.select(table, *key).await?.map(value_of);
            draft.saw(row, seen, from);
        }
    }
    Ok(())
}

/// A single change.
fn single(scene: &Scene, turns: &Turns<'_>, session: &mut AsyncSession) -> bool {
    let Key { table, key } = scene.any_key();
    let row = name_of_key(*key);
    let value = scene.book.new_value();
    let node = scene.book.begin(Kind::Atomic);
    let mut draft = Draft::new(Kind::Atomic);
    draft.wants(row, None, Some(value), true);
    scene.book.send(node, &draft);
    let cells = row_of(value);
    let future = session.upsert(table, *key, &cells);
    let Some(was_there) = drive(turns, polls(scene), future) else {
        scene.count(|counts| counts.broken_off += 1);
        return false;
    };
    draft.wants(row, Some(was_there.unwrap()), Some(value), true);
    scene.book.note(node, &draft, Fate::Committed);
    scene.count(|counts| counts.others += 1);
    true
}
