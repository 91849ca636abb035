//! Waiting for the disk, with and without a thread that waits.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use super::Engine;
use crate::error::Result;
use crate::journal::EpochClock;
use crate::session::{poll_durable, with_waker};
use crate::shard::panic_message;

/// All that had happened to a database up to some moment, on its way to the disk: made by
/// [`Engine::flushed`]. A future for any executor, or the one who calls a function ([`then`](Self::then)).
///
/// It is done when all of that is on the disk, or with [`Error::NotDurable`](crate::Error::NotDurable) when the journal could not
/// be written; the engine may be closed meanwhile. Dropping it forgets about the answer, not the changes.
#[must_use = "a future does nothing unless it is awaited or given a function to call"]
pub struct Flushed {
    /// Of a database with journals, and the epoch that has to be durable.
    awaited: Option<(Arc<EpochClock>, u64)>,
}

/// A function that is called in place of a task that is woken.
struct Callback {
    flushed: Flushed,
    done: Mutex<Option<Done>>,
}

type Done = Box<dyn FnOnce(Result<()>) + Send>;

impl Engine {
    /// Waits until all that has happened so far is on the disk, of a database with journals.
    pub fn flush(&self) -> Result<()> {
        let flushed = self.flushed();
        loop {
            match with_waker(|waker| flushed.look(waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Asks that all that has happened so far get to the disk now, as [`flush`](Self::flush) does, and
    /// lets the caller go on: the answer comes to a future or a function. Done at once for a database
    /// without journals.
    ///
    /// ```
    /// # let directory = std::env::temp_dir().join(format!("ancile-flushed-{}", std::process::id()));
    /// use ancile::{Durability, Engine, Schema, Verbs};
    ///
    /// let builder = Engine::builder().shards(1).arena_bytes(16 << 20);
    /// let engine = builder.durability(Durability::Commit).open(&directory)?;
    /// let table = engine.create_table::<[u64; 2]>("visits", Schema::cells(2))?;
    /// let mut session = engine.session()?;
    /// session.set_acknowledge(ancile::Acknowledge::Executed);
    /// session.insert(&table, &[7, 1])?;
    ///
    /// let (tell, told) = std::sync::mpsc::channel();
    /// engine.flushed().then(move |result| tell.send(result).unwrap());
    /// told.recv()??;
    /// # drop(session);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flushed(&self) -> Flushed {
        let awaited = self.peers.epochs.as_ref().map(|clock| {
            let epoch = clock.open();
            clock.ask(epoch);
            (Arc::clone(clock), epoch)
        });
        Flushed { awaited }
    }
}

impl Flushed {
    /// Calls a function once, with what became of it: from this thread, if that is known already, or
    /// from the one that writes the journals, which does nothing else meanwhile; so the function should
    /// only pass it on. If it panics, that is the end of the panic.
    pub fn then(self, done: impl FnOnce(Result<()>) + Send + 'static) {
        let callback = Callback {
            flushed: self,
            done: Mutex::new(Some(Box::new(done))),
        };
        Arc::new(callback).wake();
    }

    fn look(&self, waker: &Waker) -> Poll<Result<()>> {
        match &self.awaited {
            Some((clock, epoch)) => poll_durable(clock, *epoch, waker),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let Poll::Ready(result) = self.flushed.look(&waker) else {
            return;
        };
        let done = self
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(done) = done
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| done(result)))
        {
            // The hook has reported it; the thread that writes goes on, and so does whoever asked.
            panic_message(payload);
        }
    }
}

impl Future for Flushed {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(task.waker())
    }
}

impl fmt::Debug for Flushed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = self.awaited.as_ref().map(|(_, epoch)| epoch);
        formatter
            .debug_struct("Flushed")
            .field("epoch", &epoch)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::error::Error;

    #[test]
    fn a_journal_that_cannot_be_written_is_told_to_whoever_waits_and_whoever_comes_later() {
        let clock = Arc::new(EpochClock::new(1, 7));
        let flushed = |epoch| Flushed {
            awaited: Some((Arc::clone(&clock), epoch)),
        };
        let (tell, told) = mpsc::channel();
        let then = |epoch: u64| {
            let tell = tell.clone();
            flushed(epoch).then(move |result| tell.send((epoch, result)).unwrap());
        };
        then(7);
        then(8);
        assert!(told.try_recv().is_err());
        clock.set_durable(7, true);
        assert_eq!(told.try_recv(), Ok((7, Ok(()))));
        assert!(told.try_recv().is_err());
        clock.fail("the disk is gone".to_owned());
        let lost = Err(Error::NotDurable("the disk is gone".to_owned()));
        assert_eq!(told.try_recv(), Ok((8, lost.clone())));
        then(7);
        assert_eq!(told.try_recv(), Ok((7, Ok(()))));
        let mut late = std::pin::pin!(flushed(9));
        let polled = late.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(lost));
    }
}
