//! Clients that run side by side on one thread: each waits in the midst of its code while others go on.
//!
//! A strand is a client's code on a stack of its own. Whenever a verb waits, the strand is left, and
//! the world decides by its seed which shard or strand goes on. So the verbs are the real ones, with
//! all their loops, and interleave wherever they would on threads. A strand may be left for good while
//! others need nothing of it, as a thread that the system does not run; and it may break off in the
//! midst of a verb, as one whose caller unwinds.

#![expect(unsafe_code, reason = "a crash leaves stacks without unwinding them")]

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::{Client, Dweller, Insider, Outside, Seat, Way, World};
use crate::arena::unmap_files;
use crate::id::ShardIndex;
use crate::limits::LEASE_MICROS;
use crate::session::{AsyncSession, Link};
use crate::table::watch;

const STACK_BYTES: usize = 512 << 10;

/// Steps in which all strands must come to their end.
const STEPS_MAX: u64 = 400_000;

/// Strands that may stand still at a time.
const STALLED_MAX: usize = 2;

/// What unwinds a strand that breaks off.
pub(crate) struct BrokenOff;

/// A strand's own view of the others' turns.
pub(crate) struct Turns<'y> {
    yielder: &'y Yielder<(), ()>,
    world: Rc<World>,
    actor: u64,
    /// Waits for a transaction's end after which the strand breaks off.
    breaks_off: Cell<Option<u64>>,
}

impl Turns<'_> {
    /// Lets others go on.
    pub(crate) fn pass(&self) {
        self.yielder.suspend(());
        watch::act_for(self.actor);
    }

    /// As [`pass`](Self::pass), while a transaction is under way.
    pub(crate) fn pass_under_way(&self) {
        match self.breaks_off.get() {
            Some(0) => {
                self.breaks_off.set(None);
                resume_unwind(Box::new(BrokenOff));
            }
            Some(rounds) => self.breaks_off.set(Some(rounds - 1)),
            None => {}
        }
        self.pass();
    }

    pub(crate) fn actor(&self) -> u64 {
        self.actor
    }

    /// Breaks off after so many more waits for a transaction's end.
    pub(crate) fn break_off_in(&self, rounds: u64) {
        self.breaks_off.set(Some(rounds));
    }

    /// Does not break off any more.
    pub(crate) fn stay(&self) {
        self.breaks_off.set(None);
    }

    /// A client outside of all shards.
    pub(crate) fn client(&self) -> Client<'_> {
        let turn = self.world.choices.below(self.world.shards.len() as u64) as usize;
        Client {
            link: Link::new(self.world.peers.clone(), turn),
            host: Outside {
                world: Rc::clone(&self.world),
                way: Way::Strand(self),
            },
        }
    }

    /// A client whose calls are futures.
    pub(crate) fn async_session(&self) -> AsyncSession {
        AsyncSession::new(self.world.peers.clone(), 0)
    }

    /// Runs resident work inside a shard, when no other does.
    pub(crate) fn inside<T>(
        &self,
        index: ShardIndex,
        work: impl FnOnce(&mut Insider<'_>) -> T,
    ) -> T {
        loop {
            let Ok(mut seat) = self.world.shards[index].try_borrow_mut() else {
                self.pass();
                continue;
            };
            let mut link = Link::new(self.world.peers.clone(), index);
            return work(&mut Insider {
                link: &mut link,
                host: Dweller {
                    world: &self.world,
                    seat: &mut seat,
                    way: Way::Strand(self),
                },
            });
        }
    }
}

/// A client's code on its own stack.
struct Strand {
    /// Never dropped before its end: what is on its stack may wait when it is dropped.
    coroutine: ManuallyDrop<Coroutine<(), (), (), DefaultStack>>,
    actor: u64,
    may_stall: bool,
    is_stalled: bool,
}

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// All strands of a world.
pub(crate) struct Strands {
    world: Rc<World>,
    strands: Vec<Strand>,
    /// Strands stood still so often.
    pub(crate) stalls: u64,
}

impl Strands {
    pub(crate) fn new(world: &Rc<World>) -> Self {
        Self {
            world: Rc::clone(world),
            strands: Vec::new(),
            stalls: 0,
        }
    }

    /// Adds a strand; the code of one that may stall is not inside a shard.
    pub(crate) fn add(&mut self, may_stall: bool, code: impl FnOnce(&Turns<'_>) + 'static) {
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).unwrap());
        let world = Rc::clone(&self.world);
        let actor = self.strands.len() as u64 + 1;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            code(&Turns {
                yielder,
                world,
                actor,
                breaks_off: Cell::new(None),
            });
        });
        self.strands.push(Strand {
            coroutine: ManuallyDrop::new(coroutine),
            actor,
            may_stall,
            is_stalled: false,
        });
    }

    /// Runs all strands to their end. Those that stand still go on when all others have ended, and
    /// `when_others_end` has looked at the world.
    pub(crate) fn run(&mut self, when_others_end: impl Fn(&World)) {
        let mut steps = 0;
        while !self.strands.is_empty() {
            while self.strands.iter().any(|strand| !strand.is_stalled) {
                steps += 1;
                assert!(steps < STEPS_MAX, "nothing moves any more");
                self.step();
            }
            self.world.settle();
            when_others_end(&self.world);
            for strand in &mut self.strands {
                strand.is_stalled = false;
                strand.may_stall = false;
            }
        }
    }

    /// Runs strands until all have ended, or there was a crash; says whether all have ended. Nobody
    /// stands still for good.
    pub(crate) fn run_until(&mut self, has_crashed: impl Fn() -> bool) -> bool {
        let mut steps = 0;
        while !self.strands.is_empty() && !has_crashed() {
            steps += 1;
            assert!(steps < STEPS_MAX, "nothing moves any more");
            if steps % 5_000 == 0 {
                self.strands
                    .iter_mut()
                    .for_each(|strand| strand.is_stalled = false);
            }
            self.step();
        }
        !has_crashed()
    }

    /// Ends the process that the strands live in: nothing of it happens any more, not even that it is
    /// dropped.
    pub(crate) fn crash(mut self) {
        for strand in self.strands.drain(..) {
            let mut coroutine = ManuallyDrop::into_inner(strand.coroutine);
            // SAFETY: all that is on the stack is never used again, and neither is the world, which is
            // all that refers to it.
            unsafe { coroutine.force_reset() };
            STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
        }
        std::mem::forget(self);
        // SAFETY: the world is forgotten with all that is in it.
        unsafe { unmap_files() };
    }

    /// Lets a shard or a strand, chosen by chance, go on.
    fn step(&mut self) {
        let world = &self.world;
        let shards = world.shards.len();
        let pick = world.choices.below((shards + self.strands.len()) as u64) as usize;
        let Some(at) = pick.checked_sub(shards) else {
            world.step();
            return;
        };
        let stalled = self.strands.iter().filter(|strand| strand.is_stalled);
        let may_stall = stalled.count() < STALLED_MAX && world.choices.below(400) == 0;
        let strand = &mut self.strands[at];
        if may_stall && strand.may_stall && !strand.is_stalled {
            strand.is_stalled = true;
            self.stalls += 1;
        }
        if strand.is_stalled {
            return;
        }
        watch::act_for(strand.actor);
        if let CoroutineResult::Return(()) = strand.coroutine.resume(()) {
            let strand = self.strands.swap_remove(at);
            let stack = ManuallyDrop::into_inner(strand.coroutine).into_stack();
            STACKS.with_borrow_mut(|stacks| stacks.push(stack));
        }
    }
}

impl World {
    /// Lets time pass until every shard has nothing to do, and no lease stands any more.
    pub(crate) fn settle(&self) {
        let mut quiet = 0;
        let mut steps = 0;
        while quiet < 20 * self.shards.len() as u64 * (1 + self.delay_max) {
            steps += 1;
            assert!(steps < STEPS_MAX, "a shard comes to no end");
            self.pass_time(if quiet == 0 { LEASE_MICROS / 64 } else { 1 });
            let is_idle = self.shards.iter().all(|seat| {
                let Seat { shard, inbox, .. } = &mut *seat.borrow_mut();
                // As its thread does before it sleeps.
                inbox.sweep();
                shard.take_returned();
                shard.is_idle() && !shard.has_work(inbox)
            });
            quiet = if self.step() || !is_idle {
                0
            } else {
                quiet + 1
            };
        }
    }
}
