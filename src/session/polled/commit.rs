//! Committing, and what remains to be done if nobody waits for the end.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use super::wait::{end_of, send};
use crate::error::Result;
use crate::id::{DirectId, ShardIndex, TableKey};
use crate::session::link::{Link, Peers};
use crate::session::settle::settled;
use crate::session::transaction::{Draft, Ending, Sent, ending_of};
use crate::shard::{Command, Inbox, Shard};
use crate::transaction::Proposal;

/// A place that was reserved for a row.
pub(super) type Place = (TableKey, ShardIndex, DirectId);

/// Gives back places. Nobody waits for this.
pub(super) fn give_back(peers: &Peers, places: Vec<Place>) {
    for (table, shard, id) in places {
        if let Ok(mailbox) = peers.mailbox(shard) {
            let cancel = move |shard: &mut Shard, _: &Inbox| shard.cancel_place(table, id);
            mailbox.send(Command::Run(Box::new(cancel)));
        }
    }
}

/// A place on its way to a transaction, which may be gone when it arrives.
pub(super) struct Reserved {
    peers: Arc<Peers>,
    place: Option<Place>,
}

impl Reserved {
    pub(super) fn new(peers: Arc<Peers>, place: Place) -> Self {
        let place = Some(place);
        Self { peers, place }
    }

    /// Gives the place to somebody who will give it back.
    pub(super) fn keep(mut self) -> Option<Place> {
        self.place.take()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        give_back(&self.peers, self.place.take().into_iter().collect());
    }
}

/// Commits a transaction, and waits for the verdict. Places that it does not use are given back,
/// whether somebody waits or not.
pub(super) async fn commit(link: &mut Link, draft: &mut Draft) -> Result<Ending> {
    draft.check_time(link.peers())?;
    let has_changes = draft.has_changes();
    let Some(proposal) = draft.commit_proposal() else {
        return Ok(Ending::Committed);
    };
    let sent = send(link, proposal).await?;
    let mut deciding = Deciding {
        peers: Arc::clone(link.peers()),
        sent: Some(sent),
        places: Some(Places::of(draft)),
    };
    let proposal = end_of(link, &mut deciding.sent).await?;
    let ending = deciding.end(&proposal)?;
    if has_changes && ending == Ending::Committed {
        settled(link.awaited().cloned()).await?;
    }
    Ok(ending)
}

/// Places of a transaction, by what is to be given back.
struct Places {
    if_committed: Vec<Place>,
    if_not: Vec<Place>,
}

impl Places {
    fn of(draft: &mut Draft) -> Self {
        let (if_committed, if_not) = draft.log.places();
        Self {
            if_committed,
            if_not,
        }
    }

    fn give_back(self, peers: &Peers, ending: &Result<Ending>) {
        match ending {
            Ok(Ending::Committed) => give_back(peers, self.if_committed),
            Ok(Ending::Conflict) | Err(_) => give_back(peers, self.if_not),
        }
    }
}

/// A transaction that is being decided. If it is dropped before the end, the places are seen to by
/// whoever ends it.
struct Deciding {
    peers: Arc<Peers>,
    sent: Option<Sent>,
    places: Option<Places>,
}

impl Deciding {
    fn end(mut self, proposal: &Proposal) -> Result<Ending> {
        let ending = ending_of(proposal);
        if let Some(places) = self.places.take() {
            places.give_back(&self.peers, &ending);
        }
        ending
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else {
            return;
        };
        let peers = Arc::clone(&self.peers);
        match self.sent.take() {
            _ if places.if_not.is_empty() => {}
            Some(sent) => Orphan::leave(peers, sent, places),
            // It has ended without a verdict.
            None => places.give_back(&peers, &Ok(Ending::Conflict)),
        }
    }
}

/// The places of a transaction whose client is gone: woken at its end, it gives them back.
struct Orphan {
    peers: Arc<Peers>,
    rest: Mutex<Option<(Sent, Places)>>,
}

impl Orphan {
    fn leave(peers: Arc<Peers>, sent: Sent, places: Places) {
        let orphan = Arc::new(Self {
            peers,
            rest: Mutex::new(Some((sent, places))),
        });
        let waker = Waker::from(Arc::clone(&orphan));
        let rest = orphan.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left = rest.as_ref().is_some_and(|(sent, _)| sent.wait_for(&waker));
        drop(rest);
        if !is_left {
            orphan.settle();
        }
    }

    fn settle(&self) {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((sent, places)) = rest.take() else {
            return;
        };
        match sent.take() {
            Ok(proposal) => places.give_back(&self.peers, &proposal.and_then(|p| ending_of(&p))),
            Err(sent) => *rest = Some((sent, places)),
        }
    }
}

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {
        self.settle();
    }
}
