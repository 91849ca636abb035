//! What a future waits for, and how its task is woken.
//!
//! A task is woken when what it last asked for has happened, and looks again: it asks first, and looks
//! once more before it leaves, so that nothing is missed. It is never polled for nothing, but for the
//! few microseconds in which a shard that has ended gives back what it did not receive.

use std::future::poll_fn;
use std::task::{Context as Task, Poll, Waker, ready};

use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::journal::{Durable, EpochClock};
use crate::session::drive::{Drive, Own};
use crate::session::host::Host;
use crate::session::is_inside_shard;
use crate::session::link::{Answer, Lane, Link};
use crate::session::operations::Operations;
use crate::session::settle::settled;
use crate::session::transaction::Sent;
use crate::session::verbs::Port;
use crate::shard::{Context, Reach, Shard, Shipped, Status};
use crate::table::{Row, Table};
use crate::transaction::{Proposal, Stub};

/// The host of clients that wait elsewhere: nothing is done meanwhile.
pub(super) struct Elsewhere;

impl Host for Elsewhere {
    fn own(&self) -> Option<ShardIndex> {
        None
    }

    fn with_shard<T>(&mut self, _work: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        None
    }

    fn serve(&mut self) {}

    fn wait_turn(&mut self, _round: u32) {}

    fn await_end(&mut self, _round: u32, _stub: &Stub, _may_sleep: bool) {}

    fn await_epoch(&mut self, _round: u32, clock: &EpochClock, epoch: u64) -> Durable {
        clock.look(epoch)
    }

    fn pause(&mut self, _round: u32, _lane: &Lane) {}
}

/// A link, for what is sent and not waited for.
pub(super) struct Way<'a>(pub(super) &'a mut Link);

impl Port for Way<'_> {
    type Host<'b>
        = Elsewhere
    where
        Self: 'b;

    fn port(&mut self) -> Result<(&mut Link, Elsewhere)> {
        Ok((self.0, Elsewhere))
    }
}

fn check_outside(link: &Link) -> Result<()> {
    if is_inside_shard() {
        return Err(Error::InsideShard);
    }
    link.peers().check_home()
}

/// Begins a use of a session's lanes. The answers to what a dropped future has sent are waited for
/// and thrown away.
pub(super) async fn begin(link: &mut Link) -> Result<()> {
    check_outside(link)?;
    if !link.begin() {
        return Ok(());
    }
    let sweep = |task: &mut Task<'_>| loop {
        let Some(lane) = link.sweep() else {
            return Poll::Ready(());
        };
        ready!(poll_lane(lane, task));
    };
    poll_fn(sweep).await;
    Ok(())
}

/// Ready when it is time to look at a lane again, which has a request under way.
fn poll_lane(lane: &Lane, task: &Task<'_>) -> Poll<()> {
    if lane.wait_for(task.waker()) {
        Poll::Pending
    } else {
        Poll::Ready(())
    }
}

/// Carries operations to their shards and their results back.
pub(super) async fn carry<R: Row, O: Operations>(
    link: &mut Link,
    table: &Table<R>,
    operations: O,
) -> Result<O> {
    let mut drive = Drive::new(table, operations, None);
    let changes = drive.changes();
    let step = |task: &mut Task<'_>| loop {
        link.peers().check_home()?;
        let Some(wait) = drive.step(link, &mut Elsewhere, &mut Own::<0>::new()) else {
            return Poll::Ready(Ok::<_, Error>(()));
        };
        ready!(poll_lane(link.lane(wait.shard)?, task));
    };
    poll_fn(step).await?;
    let operations = drive.into_result()?;
    if changes {
        settled(link.awaited().cloned()).await?;
    }
    Ok(operations)
}

/// Runs a closure in a shard as one transaction.
pub(super) async fn call<T, E, F>(
    link: &mut Link,
    shard: ShardIndex,
    reach: Reach,
    closure: F,
) -> Result<T, E>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    begin(link).await?;
    let answered = ship(link, shard, Shipped::new(closure, reach)).await;
    link.end();
    match answered?.and_then(Shipped::into_result) {
        Some(Ok(Ok(value))) => {
            if reach != Reach::Reads {
                settled(link.awaited().cloned()).await?;
            }
            Ok(value)
        }
        Some(result) => result?,
        None => Err(link.peers().ended(shard).into()),
    }
}

/// Sends a call, and waits for it; `None` if its shard has ended before.
async fn ship<F, T, E>(
    link: &mut Link,
    shard: ShardIndex,
    call: Shipped<F, Result<T, E>>,
) -> Result<Option<Shipped<F, Result<T, E>>>>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    link.lane(shard)?.send_parcel(call);
    let answer = |task: &mut Task<'_>| loop {
        link.peers().check_home()?;
        let lane = link.lane(shard)?;
        match lane.take() {
            Answer::NotYet => ready!(poll_lane(lane, task)),
            Answer::Ended => {
                drop(lane.abandon());
                return Poll::Ready(Ok(None));
            }
            Answer::Done(status, _) => {
                let parcel = lane.take_parcel().filter(|_| status == Status::DONE);
                return Poll::Ready(Ok(parcel.map(|parcel| parcel.open())));
            }
        }
    };
    poll_fn(answer).await
}

/// Sends a proposal on its way. Nothing is sent before there is room for it, so that a proposal never
/// waits for its client's next use.
pub(super) async fn send(link: &mut Link, proposal: Proposal) -> Result<Sent> {
    check_outside(link)?;
    let shard = proposal.shard();
    let room = |task: &mut Task<'_>| {
        link.outbox.flush();
        let mailbox = &link.peers().mailboxes[shard];
        if link.outbox.has_room(shard) || mailbox.has_ended() {
            return Poll::Ready(());
        }
        mailbox.wake_after_step(task.waker().clone());
        Poll::Pending
    };
    poll_fn(room).await;
    Sent::new(&mut Way(link), proposal)
}

/// Waits for the end of a proposal; it is in `sent` until then.
pub(super) async fn end_of(link: &mut Link, sent: &mut Option<Sent>) -> Result<Proposal> {
    let end = |task: &mut Task<'_>| {
        loop {
            link.peers().check_home()?;
            let Some(proposal) = sent.take() else {
                return Poll::Ready(Err(Error::Closed));
            };
            let proposal = match proposal.poll(link) {
                Ok(ended) => return Poll::Ready(ended),
                Err(proposal) => sent.insert(proposal),
            };
            if poll_end(link, proposal, task.waker()) {
                return Poll::Pending;
            }
        }
    };
    poll_fn(end).await
}

/// Has a task woken when a proposal has come to its end; says whether to wait for that.
fn poll_end(link: &mut Link, sent: &Sent, waker: &Waker) -> bool {
    let shard = sent.shard();
    let has_ended = link.peers().mailboxes[shard].has_ended();
    if has_ended {
        // What a shard that has ended did not receive is dropped, which ends it.
        drop(link.outbox.returned());
    }
    if !sent.wait_for(waker) {
        return false;
    }
    if has_ended && link.outbox.may_return(shard) {
        waker.wake_by_ref();
    }
    true
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::arena::{Arena, Heap, MapOptions};
    use crate::fork::Home;
    use crate::limits::RELAY_SLOTS;
    use crate::session::link::Peers;
    use crate::session::settle::Acknowledge;
    use crate::shard::{Inbox, Mailbox};
    use crate::transaction::{Purpose, Verdict};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn proposal() -> Proposal {
        let mut proposal = Proposal::new(Purpose::Validate);
        proposal.verdicts = vec![Verdict::Open];
        proposal.part(0);
        proposal
    }

    fn poll<T>(wakes: &Arc<Wakes>, future: impl Future<Output = T>) -> Poll<T> {
        let waker = Waker::from(Arc::clone(wakes));
        pin!(future).poll(&mut Task::from_waker(&waker))
    }

    #[test]
    fn proposal_that_finds_its_ring_full_is_sent_after_the_shards_next_step_or_refused_at_its_end()
    {
        let mailbox = Arc::new(Mailbox::new());
        let peers = Arc::new(Peers {
            mailboxes: vec![Arc::clone(&mailbox)],
            block_operations: 1,
            lane_requests: 1,
            clock: Arc::new(|| 0),
            epochs: None,
            acknowledge: Acknowledge::Executed,
            home: Home::here(),
            open: AtomicUsize::new(1),
        });
        let arena = Arena::new(&MapOptions {
            bytes: 4 << 20,
            node: None,
            huge_pages: false,
        });
        let heap = Heap::new(None, 1 << 20);
        let (mailboxes, clock) = (&peers.mailboxes, Arc::clone(&peers.clock));
        let mut shard = Shard::new(0, mailboxes, clock, arena.unwrap(), &heap);
        let mut inbox = Inbox::new(mailbox);
        let mut link = Link::new(peers, 0);
        let wakes = Arc::new(Wakes::default());
        let fill = |link: &mut Link| {
            let mut sent = 0;
            while poll(&wakes, send(link, proposal())).is_ready() {
                sent += 1;
            }
            sent
        };
        assert_eq!(fill(&mut link), RELAY_SLOTS);
        assert!(
            !link.outbox.is_held_up(),
            "nothing is left behind by a dropped future"
        );
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        // The ring is attached, and then served.
        shard.tick(&mut inbox);
        shard.tick(&mut inbox);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        let mut sent = match poll(&wakes, send(&mut link, proposal())) {
            Poll::Ready(sent) => Some(sent.unwrap()),
            Poll::Pending => panic!("there is room"),
        };
        assert!(poll(&wakes, end_of(&mut link, &mut sent)).is_pending());
        while shard.tick(&mut inbox) > 0 {}
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
        let ended = poll(&wakes, end_of(&mut link, &mut sent));
        let is_decided = |ended: &Result<Proposal>| {
            ended
                .as_ref()
                .is_ok_and(|ended| ended.verdicts[0].is_committed())
        };
        assert!(matches!(ended, Poll::Ready(ended) if is_decided(&ended)));

        assert_eq!(fill(&mut link), RELAY_SLOTS);
        inbox.end(shard.into_outbox());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 3);
        let refused = poll(&wakes, send(&mut link, proposal()));
        assert!(matches!(refused, Poll::Ready(Err(Error::Closed))));
    }
}
