//! loom models: every interleaving of a proposal's end with its client.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib transaction::model`.

use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::Notify;
use loom::thread;

use super::{Baton, Proposal, Purpose, Verdict};
use crate::sync::WEAKENED;

#[test]
fn client_that_sees_the_end_sees_all_that_was_done() {
    loom::model(poll_until_ended);
}

#[test]
fn client_that_sleeps_is_woken_by_the_end() {
    loom::model(|| {
        let (mut baton, mut stub) = under_way();
        let shard = thread::spawn(move || {
            baton.deadline = 7;
            drop(baton);
        });
        let bell = Arc::new(Bell(Notify::new()));
        let waker = Waker::from(Arc::clone(&bell));
        let proposal = loop {
            match stub.take() {
                Ok(proposal) => break proposal,
                Err(back) => stub = back,
            }
            if stub.wait(&waker) {
                // Without a wake this waits for ever, which loom notices.
                bell.0.wait();
            }
        };
        assert_eq!(proposal.deadline, 7);
        shard.join().unwrap();
    });
}

#[test]
fn proposal_is_dropped_once_whoever_goes_first() {
    loom::model(|| {
        let (baton, stub) = under_way();
        let shard = thread::spawn(move || drop(baton));
        stub.wait(Waker::noop());
        drop(stub);
        shard.join().unwrap();
    });
}

#[test]
fn two_shards_hand_over_what_they_have_done() {
    loom::model(|| {
        let (mut baton, stub) = under_way();
        let shards = thread::spawn(move || {
            baton.deadline = 6;
            thread::spawn(move || {
                baton.deadline += 1;
                drop(baton);
            })
            .join()
            .unwrap();
        });
        if let Ok(proposal) = stub.take() {
            assert_eq!(proposal.deadline, 7);
        }
        shards.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn end_that_is_not_published_is_noticed() {
    WEAKENED.set(Some("end"));
    loom::model(poll_until_ended);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn end_that_is_not_received_is_noticed() {
    WEAKENED.set(Some("see_end"));
    loom::model(poll_until_ended);
}

fn under_way() -> (Baton, super::Stub) {
    let mut proposal = Proposal::new(Purpose::Commit);
    proposal.verdicts = vec![Verdict::Open];
    Baton::new(proposal)
}

fn poll_until_ended() {
    let (mut baton, mut stub) = under_way();
    let shard = thread::spawn(move || {
        baton.verdicts[0] = Verdict::Committed;
        drop(baton);
    });
    let proposal = loop {
        match stub.take() {
            Ok(proposal) => break proposal,
            Err(back) => stub = back,
        }
        thread::yield_now();
    };
    assert_eq!(proposal.verdicts, [Verdict::Committed]);
    shard.join().unwrap();
}

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}
