//! Shipping a closure to a shard, and waiting for what it returns.

#![expect(unsafe_code, reason = "a shipped closure stays on its caller's stack")]

use super::host::{Host, await_turn};
use super::link::{Answer, Link};
use super::settle::settle;
use crate::error::{Error, Result};
use crate::id::ShardIndex;
use crate::shard::{Call, Context, Reach, Request, Shipped, Status};

/// Runs a closure in a shard as one transaction.
pub(super) fn call<T, E, F>(
    link: &mut Link,
    host: &mut impl Host,
    shard: ShardIndex,
    reach: Reach,
    closure: F,
) -> Result<T, E>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    let value = if host.own() == Some(shard) {
        await_turn(host, |shard| reach.claim(shard));
        match host.with_shard(|shard| shard.transact(closure)) {
            Some(result) => result??,
            None => return Err(Error::Closed.into()),
        }
    } else {
        ship(link, host, shard, reach, closure)?
    };
    if reach != Reach::Reads {
        settle(link, host)?;
    }
    Ok(value)
}

fn ship<T, E, F>(
    link: &mut Link,
    host: &mut impl Host,
    shard: ShardIndex,
    reach: Reach,
    closure: F,
) -> Result<T, E>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    link.lane(shard)?;
    let mut shipped = Shipped::new(closure, reach);
    // SAFETY: `shipped` stays here until the guard has seen the answer, or the shard's end, also
    // when this thread unwinds.
    let request = unsafe { Request::call(&mut shipped) };
    let mut guard = Guard {
        link,
        shard,
        is_answered: true,
    };
    guard.send(host, request)?;
    let status = guard.wait(host);
    drop(guard);
    match status {
        Some(Status::DONE) => match shipped.into_result() {
            Some(result) => result?,
            None => Err(Error::Closed.into()),
        },
        _ => Err(link.peers().ended(shard).into()),
    }
}

/// Runs closures in shards, each as one transaction, at the same time; a shard has one at most. What
/// they return, in order.
pub(super) fn call_each<T, E, F>(
    link: &mut Link,
    host: &mut impl Host,
    reach: Reach,
    calls: Vec<(ShardIndex, F)>,
) -> Vec<Result<T, E>>
where
    F: FnOnce(&mut Context<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    let own = host.own();
    let ship = |(shard, closure)| (shard, Box::new(Shipped::new(closure, reach)));
    let mut shipped: Vec<_> = calls.into_iter().map(ship).collect();
    let mut guard = Calls {
        link,
        pending: Vec::new(),
    };
    let mut failures: Vec<Option<Error>> = shipped.iter().map(|_| None).collect();
    for (at, (shard, call)) in shipped.iter_mut().enumerate() {
        if own != Some(*shard) {
            // SAFETY: the calls stay in their boxes until the guard has seen every answer, or the
            // shards' ends, also when this thread unwinds.
            let request = unsafe { Request::call(&mut **call) };
            failures[at] = guard.send(host, *shard, request).err();
        }
    }
    for (at, (shard, call)) in shipped.iter_mut().enumerate() {
        if own == Some(*shard) {
            await_turn(host, |shard| reach.claim(shard));
            if host.with_shard(|shard| call.run(shard)).is_none() {
                failures[at] = Some(Error::Closed);
            }
        }
    }
    guard.wait(host);
    drop(guard);
    let settled = match reach {
        Reach::Reads => Ok(()),
        _ => settle(link, host),
    };
    let peers = link.peers();
    shipped
        .into_iter()
        .zip(failures)
        .map(
            |((shard, call), failure)| match (failure, call.into_result()) {
                (Some(error), _) => Err(error.into()),
                (None, Some(result)) => {
                    let value = result??;
                    settled.clone()?;
                    Ok(value)
                }
                (None, None) => Err(peers.ended(shard).into()),
            },
        )
        .collect()
}

/// Keeps the memory of several calls in place: it is not dropped before all are answered.
struct Calls<'a> {
    link: &'a mut Link,
    pending: Vec<ShardIndex>,
}

impl Calls<'_> {
    fn send(&mut self, host: &mut impl Host, shard: ShardIndex, request: Request) -> Result<()> {
        let mut guard = Guard {
            link: self.link,
            shard,
            is_answered: true,
        };
        guard.send(host, request)?;
        // From here on this guard waits for the answer.
        guard.is_answered = true;
        self.pending.push(shard);
        Ok(())
    }

    fn wait(&mut self, host: &mut impl Host) {
        let mut rounds = 0;
        while let Some(&shard) = self.pending.last() {
            if self.poll() {
                rounds = 0;
                continue;
            }
            if let Ok(lane) = self.link.lane(shard) {
                host.pause(rounds, lane);
            }
            rounds += 1;
        }
    }

    /// Takes the answers that are there; says whether there was one.
    fn poll(&mut self) -> bool {
        let before = self.pending.len();
        let link = &mut *self.link;
        self.pending.retain(|&shard| {
            let mut guard = Guard {
                link: &mut *link,
                shard,
                is_answered: true,
            };
            guard.poll().is_none()
        });
        self.pending.len() < before
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        while !self.pending.is_empty() {
            if !self.poll() {
                std::thread::yield_now();
            }
        }
    }
}

/// Keeps a call's memory in place: it is not dropped before the call is answered.
struct Guard<'a> {
    link: &'a mut Link,
    shard: ShardIndex,
    is_answered: bool,
}

impl Guard<'_> {
    fn send(&mut self, host: &mut impl Host, request: Request) -> Result<()> {
        let mut request = request;
        let mut rounds = 0;
        loop {
            match self.link.lane(self.shard)?.send_call(request) {
                Ok(()) => {
                    self.is_answered = false;
                    return Ok(());
                }
                Err(back) => request = back,
            }
            // Nobody asks for these answers: verbs and pipelines take theirs before they end.
            if !self.link.take_answers(|_, _| {}) {
                host.pause(rounds, self.link.lane(self.shard)?);
                rounds += 1;
            }
        }
    }

    /// Waits for the answer; `None` if the shard has ended without one.
    fn wait(&mut self, host: &mut impl Host) -> Option<Status> {
        let mut rounds = 0;
        loop {
            if let Some(status) = self.poll() {
                return status;
            }
            if let Ok(lane) = self.link.lane(self.shard) {
                host.pause(rounds, lane);
            }
            rounds += 1;
        }
    }

    fn poll(&mut self) -> Option<Option<Status>> {
        let lane = self.link.lane(self.shard).ok()?;
        match lane.take() {
            Answer::NotYet => return None,
            Answer::Ended => {
                drop(lane.abandon());
                self.is_answered = true;
                return Some(None);
            }
            Answer::Done(status, _) if lane.pending() == 0 => {
                self.is_answered = true;
                return Some(Some(status));
            }
            Answer::Done(..) => {}
        }
        None
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        while !self.is_answered && self.poll().is_none() {
            std::thread::yield_now();
        }
    }
}
