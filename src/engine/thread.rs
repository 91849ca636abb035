//! The thin shell round a shard: a pinned thread that polls, ticks, and parks when idle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ancile_topology::{
    NodePages, NumberSet, Seat, ShardVerification, current_affinity, pin_current_thread,
};
use crossbeam_queue::SegQueue;

use super::journaled::Recovered;
use super::task::{Task, Work};
use crate::arena::{Arena, ArenaFile, Binding, FileError, Heap, Identity, MapOptions};
use crate::error::OpenError;
use crate::journal::ToWriter;
use crate::limits::HEAP_BYTES;
use crate::session::{Inside, Link, Patience, Peers, Resident, enter_shard, with_waker};
use crate::shard::{Inbox, Mailbox, Shard, TableShape, panic_message};

/// What a shard's thread is to do before it serves.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) peers: Arc<Peers>,
    pub(super) seat: Seat,
    pub(super) pin: bool,
    pub(super) map: MapOptions,
    pub(super) memory: Memory,
    /// While it serves, and while its resident work waits.
    pub(super) patience: Patience,
    pub(super) resident_patience: Patience,
}

/// Where a shard's rows live.
#[derive(Clone)]
pub(super) enum Memory {
    /// In memory of the process.
    Own,
    /// In a file, which is made.
    NewFile(ArenaFile),
    /// In a file that has these tables.
    File(ArenaFile, Arc<[TableShape]>),
    /// In memory of the process, with a journal, and these tables.
    Journaled(Arc<Recovered>, Identity, Arc<[TableShape]>),
}

impl Memory {
    /// Tells who waits for a shard that it never began.
    pub(super) fn give_up(&self, shard: usize, error: &OpenError) {
        if let Self::Journaled(recovered, ..) = self
            && let Some(queue) = &recovered.queue
        {
            queue.send(shard, ToWriter::Failed(error.to_string()));
        }
    }
}

/// A shard's thread, from outside.
pub(super) struct ShardThread {
    handle: Option<JoinHandle<Result<(), String>>>,
    work: Arc<SegQueue<Work>>,
    pin_error: Option<String>,
}

/// A shard's thread on its way up.
pub(super) struct Rising {
    thread: ShardThread,
    ready: Receiver<Result<Option<String>, OpenError>>,
}

/// What a shard reads back about itself.
#[derive(Default)]
pub(super) struct ReadBack {
    pu: Option<u32>,
    cpus_allowed: NumberSet,
    pages: Vec<NodePages>,
    huge_bytes: u64,
    errors: Vec<String>,
}

impl ShardThread {
    /// Starts the thread; it inherits the caller's affinity and leaves the caller's as it is.
    pub(super) fn start(start: Start) -> Result<Rising, OpenError> {
        let shard = start.seat.shard;
        let work = Arc::new(SegQueue::new());
        let (sender, ready) = sync_channel(1);
        let queue = Arc::clone(&work);
        let body = move || {
            enter_shard();
            let pin_error = start
                .pin
                .then(|| pin_current_thread(start.seat.pu).err())
                .flatten();
            match start.shard() {
                Err(error) => {
                    start.memory.give_up(start.seat.shard, &error);
                    // The others wait for nobody who never began.
                    start.peers.retire();
                    let _ = sender.send(Err(error));
                    Ok(())
                }
                Ok(shard) => {
                    let _ = sender.send(Ok(pin_error.map(|error| error.to_string())));
                    serve(start, shard, &queue)
                }
            }
        };
        let handle = std::thread::Builder::new()
            .name(format!("ancile-shard-{shard}"))
            .spawn(body)
            .map_err(|source| OpenError::Thread { shard, source })?;
        Ok(Rising {
            thread: Self {
                handle: Some(handle),
                work,
                pin_error: None,
            },
            ready,
        })
    }

    pub(super) fn spawn<T, F>(&self, mailbox: &Mailbox, work: F) -> Task<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Resident<'_>) -> T + Send + 'static,
    {
        let (task, run) = Task::new(work);
        self.work.push(run);
        mailbox.ring();
        if mailbox.has_ended() {
            // The shard may have ended between; work that it did not take is dropped, which tells the task.
            while self.work.pop().is_some() {}
        }
        task
    }

    /// Waits for the thread's end; says why the shard's file could not be closed.
    pub(super) fn join(&mut self) -> Result<(), String> {
        match self.handle.take() {
            // A shard that failed has told its clients; its panic was caught.
            Some(handle) => handle.join().unwrap_or(Ok(())),
            None => Ok(()),
        }
    }

    /// Asked and got, side by side.
    pub(super) fn verification(&self, seat: &Seat, read: ReadBack) -> ShardVerification {
        let mut errors = read.errors;
        errors.extend(self.pin_error.clone());
        ShardVerification {
            shard: seat.shard,
            pu_asked: seat.pu,
            pu_got: read.pu,
            cpus_allowed: read.cpus_allowed,
            node_asked: seat.memory_node,
            pages_by_node: read.pages,
            huge_bytes: read.huge_bytes,
            errors,
        }
    }
}

impl Start {
    /// The shard, with its memory, and what is in it.
    fn shard(&self) -> Result<Shard, OpenError> {
        let index = self.seat.shard;
        let refused = |error: FileError| match error {
            FileError::Map(error) => OpenError::Memory {
                shard: index,
                reason: error.to_string(),
            },
            FileError::Io {
                path,
                doing,
                source,
            } => OpenError::Directory {
                path,
                doing,
                source,
            },
            FileError::Foreign { path } | FileError::Misplaced { path } => OpenError::Damaged {
                reason: format!("{}", FileError::Misplaced { path: path.clone() }),
                path,
            },
            FileError::Version { path, found, reads } => OpenError::Version { path, found, reads },
            FileError::Damaged { path, reason } => OpenError::Damaged { path, reason },
            FileError::NeedsSalvage { path } => OpenError::NeedsSalvage { path },
        };
        let (arena, opened) = match &self.memory {
            Memory::Own => {
                let arena = Arena::new(&self.map).map_err(|error| refused(error.into()))?;
                (arena, None)
            }
            Memory::NewFile(file) => (file.create(&self.map).map_err(refused)?.arena, None),
            Memory::File(file, tables) => {
                let opened = file.open(&self.map).map_err(refused)?;
                (opened.arena, Some((tables, opened.entries)))
            }
            Memory::Journaled(recovered, identity, tables) => {
                let (arena, start) = recovered
                    .take(index)
                    .ok_or_else(|| self.damaged("its memory was taken before".to_owned()))?;
                let opened = match start {
                    Some(start) => arena.finish(*identity, start),
                    None => arena.finish_copy(*identity),
                };
                let opened = opened.map_err(|reason| self.damaged(reason))?;
                (opened.arena, Some((tables, opened.entries)))
            }
        };
        let heap = Heap::new(self.map.node, HEAP_BYTES);
        let clock = Arc::clone(&self.peers.clock);
        let mut shard = Shard::new(index, &self.peers.mailboxes, clock, arena, &heap);
        if let Memory::Journaled(recovered, ..) = &self.memory
            && let Some(queue) = &recovered.queue
        {
            shard.set_writer(Arc::clone(queue));
        }
        if let Some((tables, entries)) = opened {
            let opened = shard.open(tables, entries);
            opened.map_err(|reason| self.damaged(reason))?;
        }
        Ok(shard)
    }

    fn damaged(&self, reason: String) -> OpenError {
        let path = match &self.memory {
            Memory::NewFile(file) | Memory::File(file, _) => file.path.clone(),
            Memory::Own | Memory::Journaled(..) => format!("shard {}", self.seat.shard).into(),
        };
        OpenError::Damaged { path, reason }
    }
}

impl Rising {
    /// Waits until the shard has its memory.
    pub(super) fn ready(mut self) -> Result<ShardThread, OpenError> {
        match self.ready.recv() {
            Ok(Ok(pin_error)) => {
                self.thread.pin_error = pin_error;
                Ok(self.thread)
            }
            Ok(Err(error)) => {
                let _ = self.thread.join();
                Err(error)
            }
            Err(_) => Err(OpenError::Placement(
                "a shard's thread ended before it was ready".to_owned(),
            )),
        }
    }
}

/// Resident work, while the shard takes any.
fn next_work(shard: &Shard, work: &SegQueue<Work>) -> Option<Work> {
    if shard.is_retired { None } else { work.pop() }
}

/// How often to let others go first, before going to sleep, while somebody waits for the disk: the writer
/// is about to ask for a seal.
const SEAL_YIELDS: u32 = 200;

/// Spins or yields while there is nothing to do; says when it is time to park instead.
fn is_patient_no_more(shard: &mut Shard, patience: Patience, idle: u32) -> bool {
    shard.begin_idle();
    if !patience.pause(idle) {
        return false;
    }
    let is_over = idle >= patience.spins + patience.yields + SEAL_YIELDS;
    if !is_over && shard.awaits_seal() {
        std::thread::yield_now();
        return false;
    }
    true
}

/// Sleeps until woken, or as long as the shard has time.
fn sleep(micros: Option<u64>) {
    match micros {
        None => std::thread::park(),
        Some(micros) => std::thread::park_timeout(Duration::from_micros(micros)),
    }
}

/// Serves until the shard is closed, or has failed.
fn serve(start: Start, mut shard: Shard, work: &SegQueue<Work>) -> Result<(), String> {
    let Start {
        peers,
        seat,
        patience,
        resident_patience,
        ..
    } = start;
    let mailbox = Arc::clone(&peers.mailboxes[seat.shard]);
    with_waker(|waker| mailbox.set_waker(waker.clone()));
    let mut inbox = Inbox::new(Arc::clone(&mailbox));
    let mut link = Link::new(Arc::clone(&peers), seat.shard);
    let served = catch_unwind(AssertUnwindSafe(|| {
        let mut idle = 0;
        loop {
            if shard.tick(&mut inbox) > 0 {
                shard.end_idle();
                idle = 0;
            } else if let Some(run) = next_work(&shard, work) {
                shard.end_idle();
                run(&mut Resident::new(
                    Inside {
                        shard: &mut shard,
                        inbox: &mut inbox,
                        patience: resident_patience,
                        unserved: 0,
                    },
                    &mut link,
                ));
                idle = 0;
            } else if shard.is_retired && peers.all_retired() {
                return;
            } else if shard.closing && !shard.is_retired && shard.is_idle() {
                shard.is_retired = true;
                peers.retire();
            } else if is_patient_no_more(&mut shard, patience, idle) {
                inbox.sweep();
                shard.take_returned();
                let is_over = || shard.is_retired && peers.all_retired();
                let is_ready = || shard.has_work(&inbox) || !work.is_empty() || is_over();
                mailbox.park(is_ready, || sleep(shard.patience()));
                idle = 0;
            } else {
                idle += 1;
            }
        }
    }));
    // The file of a shard that has failed is left as it is: whoever opens it undoes what was half done.
    let mut closed = Ok(());
    match served {
        Ok(()) => closed = close(&mut shard, &mut inbox, &mailbox),
        Err(payload) => {
            let message = panic_message(payload);
            shard.give_up_journal(message.clone());
            mailbox.fail(message);
        }
    }
    drop(link);
    if !shard.is_retired {
        peers.retire();
    }
    inbox.end(shard.into_outbox());
    while work.pop().is_some() {}
    closed
}

/// Closes the file of a shard, or lets the writer of its journal close it.
fn close(shard: &mut Shard, inbox: &mut Inbox, mailbox: &Mailbox) -> Result<(), String> {
    if !shard.begin_close() {
        return shard.close();
    }
    loop {
        shard.tick(inbox);
        if let Some(closed) = shard.closed() {
            return closed;
        }
        mailbox.park(|| shard.has_work(inbox), std::thread::park);
    }
}

/// Reads back what the calling shard has: run on its own thread.
pub(super) fn verify(shard: &mut Shard) -> ReadBack {
    let mut read = ReadBack {
        pu: crate::arena::current_pu(),
        ..ReadBack::default()
    };
    match current_affinity() {
        Ok(pus) => read.cpus_allowed = pus,
        Err(error) => read
            .errors
            .push(format!("the thread's affinity could not be read: {error}")),
    }
    let arena = shard.catalog.arena();
    if let Binding::Denied { node, errno } = *arena.binding() {
        let error = std::io::Error::from_raw_os_error(errno);
        read.errors.push(format!(
            "memory not bound to node {node}: {error}; pages are where they were first touched"
        ));
    }
    let pages = arena.placement();
    read.errors.extend(
        pages
            .error
            .map(|error| format!("pages could not be located: {error}")),
    );
    read.pages = pages
        .by_node
        .into_iter()
        .map(|(node, pages)| NodePages { node, pages })
        .collect();
    read.huge_bytes = pages.huge_bytes;
    read
}
