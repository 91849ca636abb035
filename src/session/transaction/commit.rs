//! Sending a transaction over its participants, and waiting for the verdict.

use std::task::Waker;

use super::Transaction;
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::session::host::Host;
use crate::session::link::Link;
use crate::session::settle::settle;
use crate::session::verbs::{Port, Verbs};
use crate::shard::Reach;
use crate::transaction::mutant::{self, Mutant};
use crate::transaction::{Baton, Phase, Proposal, Purpose, Stub, Verdict};

/// How a try has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Committed,
    /// Others came between; the transaction may be tried again.
    Conflict,
}

impl<S: Verbs> Transaction<'_, S> {
    /// Commits; a conflict is an error.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self.try_to_commit()? {
            Ending::Committed => Ok(()),
            Ending::Conflict => Err(Error::Conflict { tries: 1 }),
        }
    }

    /// Commits, and waits for the verdict.
    pub(super) fn try_to_commit(&mut self) -> Result<Ending> {
        let has_changes = self.draft.has_changes();
        let Some(sent) = self.start_commit()? else {
            return Ok(Ending::Committed);
        };
        let proposal = sent.wait(self.session)?;
        let ending = self.end_commit(&proposal)?;
        if has_changes && ending == Ending::Committed {
            let (link, mut host) = self.session.port()?;
            settle(link, &mut host)?;
        }
        Ok(ending)
    }

    /// Sends what is to be committed on its way; `None` if nothing has to be.
    pub(crate) fn start_commit(&mut self) -> Result<Option<Sent>> {
        self.check_time()?;
        match self.draft.commit_proposal() {
            None => Ok(None),
            Some(proposal) => Sent::new(self.session, proposal).map(Some),
        }
    }

    /// Takes the verdict. What the transaction has reserved and does not use is given back.
    pub(crate) fn end_commit(&mut self, proposal: &Proposal) -> Result<Ending> {
        let ending = ending_of(proposal)?;
        if ending == Ending::Committed {
            self.give_back_places(true);
        }
        Ok(ending)
    }

    /// Whether what was read is still so: whatever the transaction's code made of it, was made of
    /// rows that were there together.
    pub(super) fn is_consistent(&mut self) -> Result<bool> {
        let Some(proposal) = self.draft.check_proposal() else {
            return Ok(true);
        };
        let verdict = ending_of(&send(self.session, proposal)?)?;
        Ok(matches!(verdict, Ending::Committed))
    }

    /// Ends without a change: gives back reserved places, and the lease.
    pub(super) fn abandon(&mut self) {
        if let Some(lease) = self.draft.lease.take() {
            let_go(self.session, lease);
        }
        self.give_back_places(false);
    }

    fn give_back_places(&mut self, has_committed: bool) {
        for (table, shard, id) in self.draft.log.unused_places(has_committed) {
            // A proposal that is still under way, because this unwinds, has its turn first. If the shard
            // has ended, so has the place.
            let reach = if mutant::is(Mutant::PlacesUnguarded) {
                Reach::Reads
            } else {
                Reach::Place { table, id }
            };
            let _ = self.ask(shard, reach, move |context| {
                context.cancel_place(table, id);
                Ok(())
            });
        }
    }
}

/// What a lease's proposal is good for next: the commit of the transaction that it was taken for.
pub(in crate::session) fn leased(mut proposal: Proposal) -> Proposal {
    proposal.purpose = Purpose::Commit;
    proposal.phase = Phase::Up;
    proposal.step = 0;
    proposal.is_leased = true;
    for part in &mut proposal.parts {
        part.clear();
    }
    proposal
}

/// Lets go of a lease. Nobody waits for this: a lease that is not let go of ends by itself.
pub(in crate::session) fn let_go(session: &mut impl Port, mut lease: Proposal) {
    lease.purpose = Purpose::Lease;
    lease.phase = Phase::Down;
    lease.step = lease.parts.len() - 1;
    let (baton, _) = Baton::new(lease);
    if let Ok((link, mut host)) = session.port() {
        if host.own() == Some(baton.shard()) {
            host.with_shard(|shard| shard.receive(baton));
        } else if link.outbox.send(baton).is_ok() {
            link.outbox.flush();
        }
    }
}

/// A proposal that was sent. Dropping this does not stop it.
pub(crate) struct Sent {
    stub: Stub,
    /// Its first participant.
    shard: ShardIndex,
}

impl Sent {
    /// Sends a proposal on its way.
    pub(in crate::session) fn new(session: &mut impl Port, proposal: Proposal) -> Result<Self> {
        let (link, mut host) = session.port()?;
        #[cfg(test)]
        let proposal = proposal.mutated(link.outbox.sent());
        let shard = proposal.shard();
        let (baton, stub) = Baton::new(proposal);
        if host.own() == Some(shard) {
            host.with_shard(|shard| shard.receive(baton));
        } else if let Err(baton) = link.outbox.send(baton) {
            drop(baton);
            return Err(link.peers().ended(shard));
        }
        link.outbox.flush();
        Ok(Self { stub, shard })
    }

    /// Its first participant.
    pub(in crate::session) fn shard(&self) -> ShardIndex {
        self.shard
    }

    /// Asks to be woken at the end. Says whether to wait for that: not if the end is there.
    pub(in crate::session) fn wait_for(&self, waker: &Waker) -> bool {
        self.stub.wait(waker)
    }

    /// The proposal, if it has come to its end.
    pub(crate) fn poll(self, link: &mut Link) -> Result<Result<Proposal>, Self> {
        link.outbox.flush();
        self.take()
    }

    /// As [`poll`](Self::poll), of a client that has nothing more to send.
    pub(in crate::session) fn take(self) -> Result<Result<Proposal>, Self> {
        let Self { stub, shard } = self;
        #[cfg(test)]
        if let Some(verdicts) = stub.peek() {
            let mut proposal = Proposal::new(Purpose::Commit);
            proposal.verdicts = verdicts;
            return Ok(Ok(proposal));
        }
        match stub.take() {
            Ok(proposal) if proposal.is_broken => Ok(Err(Error::Closed)),
            Ok(proposal) => Ok(Ok(proposal)),
            Err(stub) => Err(Self { stub, shard }),
        }
    }

    /// Waits for its end.
    pub(super) fn wait(mut self, session: &mut impl Port) -> Result<Proposal> {
        let (link, mut host) = session.port()?;
        let mut rounds = 0;
        loop {
            match self.poll(link) {
                Ok(proposal) => return proposal,
                Err(back) => self = back,
            }
            // What a shard that has ended did not receive is dropped, which ends it.
            let has_ended = link.peers().has_ended(self.shard);
            if has_ended {
                drop(link.outbox.returned());
            }
            host.await_end(rounds, &self.stub, !has_ended);
            rounds += 1;
        }
    }
}

/// Sends a proposal on its way and waits for its end.
pub(super) fn send(session: &mut impl Port, proposal: Proposal) -> Result<Proposal> {
    Sent::new(session, proposal)?.wait(session)
}

pub(crate) fn ending_of(proposal: &Proposal) -> Result<Ending> {
    match &proposal.verdicts[0] {
        Verdict::Committed => Ok(Ending::Committed),
        Verdict::Conflict(_) | Verdict::Refused { .. } => Ok(Ending::Conflict),
        Verdict::Failed(error) => Err((**error).clone()),
        Verdict::Open => unreachable!("a proposal ends decided"),
    }
}
