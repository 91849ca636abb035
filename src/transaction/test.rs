//! Intents against a plain list, and the hand-over of proposals between threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread;

use super::{Added, Baton, EntryId, Intents, Mode, Proposal, Purpose, RowKey, Verdict};
use crate::arena::Heap;
use crate::error::Error;
use crate::id::hash;

/// What an entry wants: of a row, or, `None`, of the shard as a whole.
type Wants = Vec<(Option<RowKey>, Mode)>;

/// The rule, said plainly: an entry is granted when nobody who came before it is in its way.
#[derive(Default)]
struct Queue {
    /// In the order of their coming.
    entries: Vec<(EntryId, Wants)>,
}

impl Queue {
    fn is_granted(&self, at: usize) -> bool {
        let (_, wants) = &self.entries[at];
        let is_in_the_way = |(_, others): &(EntryId, Wants)| {
            others.iter().any(|other| {
                wants.iter().any(|want| {
                    want.0 == other.0 && (want.1 == Mode::Write || other.1 == Mode::Write)
                })
            })
        };
        !self.entries[..at].iter().any(is_in_the_way)
    }

    fn wants(&self, key: RowKey) -> bool {
        let mut all = self.entries.iter().flat_map(|(_, wants)| wants);
        all.any(|(wanted, _)| *wanted == Some(key))
    }

    fn wants_alone(&self) -> bool {
        let mut all = self.entries.iter().flat_map(|(_, wants)| wants);
        all.any(|&(wanted, mode)| wanted.is_none() && mode == Mode::Write)
    }
}

struct Case {
    random: u64,
    intents: Intents<u64>,
    model: Queue,
    /// Entries that were taken as granted.
    told: Vec<EntryId>,
    number: u64,
}

impl Case {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = hash(self.random);
        self.random % bound
    }

    fn enter(&mut self) {
        let (intents, number) = (&mut self.intents, self.number);
        if hash(self.random ^ 1).is_multiple_of(8) {
            let entry = intents.begin(Mode::Write).unwrap();
            intents.seal(entry, number);
            self.model.entries.push((entry, vec![(None, Mode::Write)]));
            return;
        }
        let entry = intents.begin(Mode::Read).unwrap();
        let mut wants: Wants = vec![(None, Mode::Read)];
        let mut members: Vec<(RowKey, u16, bool)> = Vec::new();
        for member in 0..1 + self.below(3) as u16 {
            for _ in 0..self.below(4) {
                let key = RowKey {
                    table: self.below(2) as u32,
                    row: self.below(4),
                };
                if members
                    .iter()
                    .any(|other| (other.0, other.1) == (key, member))
                {
                    continue;
                }
                let mode = [Mode::Read, Mode::Write][self.below(2) as usize];
                let writes = mode == Mode::Write;
                let clashes = members
                    .iter()
                    .any(|other| other.0 == key && other.1 != member && (other.2 || writes));
                let added = self.intents.add(entry, key, mode, member).unwrap();
                assert_eq!(
                    added == Added::Clashes,
                    clashes,
                    "{members:?} {key:?} {member}"
                );
                members.push((key, member, writes));
                match wants.iter_mut().find(|want| want.0 == Some(key)) {
                    Some(want) if writes => want.1 = mode,
                    Some(_) => {}
                    None => wants.push((Some(key), mode)),
                }
                assert!(
                    !self.intents.is_granted(entry),
                    "nobody is granted too soon"
                );
            }
        }
        self.intents.seal(entry, number);
        self.model.entries.push((entry, wants));
    }

    /// Somebody goes; mostly one who was granted, as who waits goes only when its time is over.
    fn leave(&mut self) {
        let count = self.model.entries.len() as u64;
        if count == 0 {
            return;
        }
        let at = self.below(count) as usize;
        if !self.model.is_granted(at) && self.below(4) > 0 {
            return;
        }
        let (entry, _) = self.model.entries.remove(at);
        assert!(self.intents.release(entry).is_some());
        assert_eq!(self.intents.release(entry), None, "an entry goes once");
        self.told.retain(|told| *told != entry);
    }

    fn check(&mut self) {
        while let Some(entry) = self.intents.next_granted() {
            assert!(self.intents.holder(entry).is_some());
            assert!(!self.told.contains(&entry), "granted twice");
            self.told.push(entry);
        }
        for (at, (entry, wants)) in self.model.entries.iter().enumerate() {
            let is_granted = self.model.is_granted(at);
            assert_eq!(self.intents.is_granted(*entry), is_granted, "{entry:?}");
            assert_eq!(self.told.contains(entry), is_granted, "{entry:?}");
            for &(key, mode) in wants {
                let Some(key) = key else { continue };
                assert!(self.intents.covers(*entry, key, mode));
                assert!(self.intents.covers(*entry, key, Mode::Read));
                let is_write = mode == Mode::Write;
                assert_eq!(self.intents.covers(*entry, key, Mode::Write), is_write);
            }
        }
        let standing: BTreeSet<_> = self
            .intents
            .all()
            .map(|entry| format!("{entry:?}"))
            .collect();
        assert_eq!(standing.len(), self.model.entries.len());
        assert_eq!(self.intents.is_empty(), self.model.entries.is_empty());
        assert_eq!(self.intents.bars_alone(), !self.model.entries.is_empty());
        for table in 0..2 {
            for row in 0..4 {
                let key = RowKey { table, row };
                let bars = self.model.wants(key) || self.model.wants_alone();
                assert_eq!(self.intents.bars_write(Some(key)), bars, "{key:?}");
            }
        }
        assert_eq!(self.intents.bars_write(None), self.model.wants_alone());
    }
}

#[test]
fn intents_are_granted_exactly_when_nobody_before_is_in_the_way() {
    for seed in 0..60 {
        let mut case = Case {
            random: hash(seed),
            intents: Intents::new(&Heap::new(None, 1 << 20)),
            model: Queue::default(),
            told: Vec::new(),
            number: 0,
        };
        for number in 0..150 {
            case.number = number;
            let crowd = case.model.entries.len() as u64;
            if case.below(4 + crowd) < 4 {
                case.enter();
            } else {
                case.leave();
            }
            case.check();
        }
    }
}

/// Counts how often it is woken.
struct Count {
    wakes: AtomicU64,
    thread: thread::Thread,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
    }
}

#[test]
fn client_that_sleeps_is_woken_by_the_end_and_sees_all_that_was_done() {
    for round in 0..400_u64 {
        let mut proposal = Proposal::new(Purpose::Commit);
        proposal.verdicts = vec![Verdict::Open; 3];
        let (mut baton, mut stub) = Baton::new(proposal);
        let shards = thread::spawn(move || {
            for _ in 0..hash(round) % 200 {
                std::hint::spin_loop();
            }
            baton.deadline = round;
            baton.verdicts[1] = Verdict::Committed;
            drop(baton);
        });
        let count = Arc::new(Count {
            wakes: AtomicU64::new(0),
            thread: thread::current(),
        });
        let waker = Waker::from(Arc::clone(&count));
        let proposal = loop {
            match stub.take() {
                Ok(proposal) => break proposal,
                Err(back) => stub = back,
            }
            if stub.wait(&waker) {
                thread::park();
            }
        };
        shards.join().unwrap();
        assert_eq!(proposal.deadline, round);
        let closed = Verdict::failed(Error::Closed);
        assert_eq!(
            proposal.verdicts,
            [closed.clone(), Verdict::Committed, closed]
        );
        assert!(count.wakes.load(Ordering::Relaxed) <= 1);
    }
}

#[test]
fn client_may_go_before_the_end_or_after_it() {
    for round in 0..200 {
        let (baton, stub) = Baton::new(Proposal::new(Purpose::Commit));
        let shards = thread::spawn(move || drop(baton));
        if round % 2 == 0 {
            stub.wait(Waker::noop());
        }
        drop(stub);
        shards.join().unwrap();
    }
}
