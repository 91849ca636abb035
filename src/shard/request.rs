//! What travels to a shard: a request of one cache line, and the block or call that it points at.
//!
//! A request names a function compiled for one row width and one kind of id, so the shard executes
//! the client's types without knowing them. Whoever makes a request hands its memory to the shard;
//! it is the client's again when the reply is there. Both kinds of memory (a lane's payload, the
//! stack of a caller that waits) outlive the reply: see [`Request::block`] and [`Request::call`].

#![expect(
    unsafe_code,
    reason = "blocks lie in memory that client and shard use in turn"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::{Claim, Shard, Status};
use crate::arena::prefetch_range;
use crate::error::Error;
use crate::id::{RowId, TableKey};
use crate::table::{Block, Code, Rolling, Verb, Verbs, Width};

const LINE_BYTES: usize = 64;

type Run = unsafe fn(&mut Shard, &Request, Rolling<'_>) -> Status;
type MakeClaim = unsafe fn(&mut Shard, &Request) -> Claim;

/// A request in a ring.
pub(crate) struct Request {
    run: Run,
    claim: MakeClaim,
    memory: NonNull<u8>,
    table: TableKey,
    layout: BlockLayout,
    count: u32,
    verbs: Written,
}

// One slot of a ring is one line: eight bytes of it are the ring's.
const _: () = assert!(size_of::<Request>() <= LINE_BYTES - 8);

// SAFETY: a request is the handing over of its memory: the client does not touch it until the reply.
unsafe impl Send for Request {}

impl Request {
    /// A request to execute a block of a lane's payload. The lane keeps its payload alive until both
    /// of its ends are gone, and reuses a block's memory only after its reply.
    pub(crate) fn block<W: Width, I: RowId>(
        table: TableKey,
        width: W,
        block: &BlockMemory,
    ) -> Self {
        debug_assert_eq!(width.cells(), block.layout.cells as usize);
        Self {
            run: run_block::<W, I>,
            claim: claim_rows::<I>,
            memory: block.memory,
            table,
            layout: block.layout,
            count: block.count,
            verbs: block.verbs,
        }
    }

    /// A request to call `call` in the shard.
    ///
    /// # Safety
    /// `call` stays where it is, untouched by the caller, until the request is answered or the
    /// shard has ended.
    pub(crate) unsafe fn call<C: Call>(call: &mut C) -> Self {
        // SAFETY: by the contract, which is the same.
        unsafe { Self::call_at(NonNull::from(call)) }
    }

    /// As [`call`](Self::call), of a call in memory of its own.
    ///
    /// # Safety
    /// As for [`call`](Self::call).
    pub(super) unsafe fn call_at<C: Call>(call: NonNull<C>) -> Self {
        Self {
            run: run_call::<C>,
            claim: claim_for_call::<C>,
            memory: call.cast(),
            table: TableKey { index: 0, stamp: 0 },
            layout: BlockLayout {
                capacity: 0,
                cells: 0,
            },
            count: 0,
            verbs: Written::None,
        }
    }

    /// Executes the request; `rolling` is how it joins the requests before and after it.
    #[inline]
    pub(super) fn run(&self, shard: &mut Shard, rolling: Rolling<'_>) -> Status {
        // SAFETY: `run` was chosen together with `memory` by one of the two makers, whose memory is
        // the shard's until the reply.
        unsafe { (self.run)(shard, self, rolling) }
    }

    /// Asks for what the request will change; `None` if no intent is in its way.
    pub(super) fn claim(&self, shard: &mut Shard) -> Claim {
        // SAFETY: as in `run`.
        unsafe { (self.claim)(shard, self) }
    }

    /// The ids of the request that comes next, if it goes on where this one ends: blocks of one
    /// table, with rows of one type and ids of one kind.
    #[inline]
    pub(super) fn continued_by<'a>(&self, next: &'a Request) -> &'a [u64] {
        if next.count == 0 || !std::ptr::fn_addr_eq(next.run, self.run) || next.table != self.table
        {
            return &[];
        }
        // SAFETY: the next request is the shard's, too; its ids are the first part of its block.
        let ids: &[u64] =
            unsafe { std::slice::from_raw_parts(next.memory.cast().as_ptr(), next.count as usize) };
        prefetch_range(ids.as_ptr().cast(), size_of_val(ids));
        ids
    }
}

/// Code that a client ships to a shard. It answers for its own panics.
pub(crate) trait Call {
    /// Asks for what it will change.
    fn claim(&self, shard: &mut Shard) -> Claim;
    fn run(&mut self, shard: &mut Shard);
}

/// # Safety
/// As for [`Request::call`].
unsafe fn claim_for_call<C: Call>(shard: &mut Shard, request: &Request) -> Claim {
    // SAFETY: `memory` is a `C` that its owner leaves alone until the reply.
    unsafe { request.memory.cast::<C>().as_ref() }.claim(shard)
}

/// # Safety
/// The request's memory is a block of its layout that its owner leaves alone until the reply.
unsafe fn claim_rows<I: RowId>(shard: &mut Shard, request: &Request) -> Claim {
    // SAFETY: by the contract of this function; outcomes are bytes of initialised memory, cleared
    // before they are viewed.
    let block = unsafe {
        let count = request.count as usize;
        request.layout.clear_outcomes(request.memory, count);
        request.layout.view(request.memory, count, request.verbs)
    };
    let verbs = block.verbs;
    if matches!(verbs, Verbs::All(Verb::Select)) {
        return Ok(None);
    }
    let changed = |(at, id): (usize, &u64)| (verbs.of(at) != Verb::Select).then_some(*id);
    let ids = block.ids.iter().enumerate().filter_map(changed);
    shard.claim::<I>(request.table, ids)
}

/// # Safety
/// As for [`Request::call`].
unsafe fn run_call<C: Call>(shard: &mut Shard, request: &Request, _: Rolling<'_>) -> Status {
    // SAFETY: `memory` is a `C` that its owner leaves alone until the reply.
    let call = unsafe { request.memory.cast::<C>().as_mut() };
    call.run(shard);
    Status::DONE
}

/// # Safety
/// The request's memory is a block of its layout that its owner leaves alone until the reply.
unsafe fn run_block<W: Width, I: RowId>(
    shard: &mut Shard,
    request: &Request,
    rolling: Rolling<'_>,
) -> Status {
    let Ok((table, arena)) = shard.catalog.table(request.table) else {
        return Status::TABLE_GONE;
    };
    let Some(width) =
        W::of(table.columns()).filter(|width| width.cells() == request.layout.cells as usize)
    else {
        return Status::TABLE_GONE;
    };
    let count = request.count as usize;
    // SAFETY: by the contract of this function; the outcomes are written before they are viewed, as
    // the memory may have been something else before.
    let mut block = unsafe {
        request.layout.clear_outcomes(request.memory, count);
        request.layout.view(request.memory, count, request.verbs)
    };
    if !matches!(block.verbs, Verbs::All(Verb::Select))
        && let Err(error) = arena.check_writable()
    {
        return match error {
            Error::JournalFull => Status::JOURNAL_FULL,
            Error::JournalBroken => Status::JOURNAL_BROKEN,
            _ => Status::READ_ONLY,
        };
    }
    block.rolling = rolling;
    prefetch_range(block.ids.as_ptr().cast(), size_of_val(block.ids));
    if !matches!(block.verbs, Verbs::All(Verb::Select | Verb::Delete)) {
        prefetch_range(block.rows.as_ptr().cast(), size_of_val(block.rows));
    }
    let verb = match request.verbs {
        Written::All(verb) => Some(verb),
        Written::None | Written::Each => None,
    };
    if shard.tally.count(verb, u64::from(request.count)) {
        shard.tally.sample::<I>(request.table, table, block.ids);
    }
    table.run::<W, I>(arena, width, &mut block);
    table.end_scope(arena);
    Status::DONE
}

/// Where the parts of a block lie. Each part begins on a line of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLayout {
    capacity: u32,
    cells: u32,
}

impl BlockLayout {
    pub(crate) fn new(capacity: usize, cells: usize) -> Self {
        Self {
            capacity: capacity as u32,
            cells: cells as u32,
        }
    }

    const fn outcomes(self) -> usize {
        (self.capacity as usize * size_of::<u64>()).next_multiple_of(LINE_BYTES)
    }

    const fn verbs(self) -> usize {
        self.outcomes() + (self.capacity as usize * size_of::<Code>()).next_multiple_of(LINE_BYTES)
    }

    const fn tags(self) -> usize {
        self.verbs() + (self.capacity as usize * size_of::<Verb>()).next_multiple_of(LINE_BYTES)
    }

    const fn rows(self) -> usize {
        self.tags() + (self.capacity as usize * size_of::<u32>()).next_multiple_of(LINE_BYTES)
    }

    /// Bytes of a block; a multiple of a line.
    pub(crate) const fn bytes(self) -> usize {
        self.rows()
            + (self.capacity as usize * self.cells as usize * 8).next_multiple_of(LINE_BYTES)
    }

    /// # Safety
    /// `memory` is a block of this layout, and nobody else uses it meanwhile.
    unsafe fn clear_outcomes(self, memory: NonNull<u8>, count: usize) {
        const { assert!(Code::Pending as u8 == 0) };
        debug_assert!(count <= self.capacity as usize);
        // SAFETY: the outcomes are part of the block.
        unsafe { memory.add(self.outcomes()).write_bytes(0, count) };
    }

    /// # Safety
    /// `memory` is a block of this layout, its first `count` outcomes written, and its verbs where
    /// they say; nobody else uses it during `'a`.
    unsafe fn view<'a>(self, memory: NonNull<u8>, count: usize, verbs: Written) -> Block<'a> {
        debug_assert!(count <= self.capacity as usize);
        let base = memory.as_ptr();
        // SAFETY: the parts are disjoint, aligned ranges of the block; ids and rows are zeroed
        // memory at first, so initialised; the rest is by the contract.
        unsafe {
            Block {
                ids: std::slice::from_raw_parts_mut(base.cast(), count),
                verbs: match verbs {
                    Written::None => Verbs::Each(&[]),
                    Written::All(verb) => Verbs::All(verb),
                    Written::Each => Verbs::Each(std::slice::from_raw_parts(
                        base.add(self.verbs()).cast(),
                        count,
                    )),
                },
                outcomes: std::slice::from_raw_parts_mut(base.add(self.outcomes()).cast(), count),
                rows: std::slice::from_raw_parts_mut(
                    base.add(self.rows()).cast(),
                    count * self.cells as usize,
                ),
                rolling: Rolling::ALONE,
            }
        }
    }
}

/// A block in a lane's payload, being written or read by its client. There is one for each block:
/// it is neither cloned nor made twice for the same memory (the lane's allocator sees to that).
pub(crate) struct BlockMemory {
    memory: NonNull<u8>,
    layout: BlockLayout,
    count: u32,
    verbs: Written,
    tags: NonNull<u32>,
    rows: NonNull<u64>,
}

/// The verbs of a block: one for all, until a second one comes; then they are in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    None,
    All(Verb),
    Each,
}

// SAFETY: it owns its part of the payload until it is sent.
unsafe impl Send for BlockMemory {}

impl BlockMemory {
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.layout.capacity
    }

    /// Adds an operation; gives the cells of its row, for verbs that bring one.
    #[inline(always)]
    pub(crate) fn push(&mut self, verb: Verb, id: u64, tag: u32) -> &mut [u64] {
        assert!(!self.is_full());
        if self.verbs != Written::All(verb) {
            self.write_verb(verb);
        }
        let at = self.count as usize;
        let cells = self.layout.cells as usize;
        self.count += 1;
        // SAFETY: `at` is below the capacity; the block is ours while it is written.
        unsafe {
            self.memory.cast::<u64>().add(at).write(id);
            self.tags.add(at).write(tag);
            std::slice::from_raw_parts_mut(self.rows.add(at * cells).as_ptr(), cells)
        }
    }

    /// Notes the verb of the next operation, which is not that of all before it.
    fn write_verb(&mut self, verb: Verb) {
        let written = match self.verbs {
            Written::None => {
                self.verbs = Written::All(verb);
                return;
            }
            Written::All(before) => vec![before; self.count as usize],
            Written::Each => Vec::new(),
        };
        self.verbs = Written::Each;
        // SAFETY: `count` is below the capacity; the block is ours while it is written.
        unsafe {
            let verbs = self.memory.add(self.layout.verbs()).cast::<Verb>();
            verbs.copy_from_nonoverlapping(NonNull::from(&written[..]).cast(), written.len());
            verbs.add(self.count as usize).write(verb);
        }
    }

    /// The cells of the row that the next operation will bring.
    pub(crate) fn next_row(&mut self) -> &mut [u64] {
        assert!(!self.is_full());
        let cells = self.layout.cells as usize;
        let start = self.count as usize * cells;
        // SAFETY: `count` is below the capacity; the block is ours while it is written, and its
        // memory was zeroed once, so it is initialised.
        unsafe {
            let rows = self.memory.as_ptr().add(self.layout.rows());
            std::slice::from_raw_parts_mut(rows.cast::<u64>().add(start), cells)
        }
    }

    /// Where it begins in its payload.
    pub(crate) fn offset(&self, payload: &Payload) -> usize {
        self.memory.addr().get() - payload.memory.addr().get()
    }

    /// Bytes of payload that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.bytes()
    }

    /// Operations in it.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Reads an answered block: tag, verb, outcome, id and row of each operation.
    #[inline(always)]
    pub(crate) fn results(&self, mut visit: impl FnMut(u32, Verb, Code, u64, &[u64])) {
        let (count, cells) = (self.len(), self.layout.cells as usize);
        // SAFETY: the block was answered, so it is ours again, with all `count` operations written.
        let (block, tags) = unsafe {
            let block = self.layout.view(self.memory, count, self.verbs);
            (block, std::slice::from_raw_parts(self.tags.as_ptr(), count))
        };
        prefetch_range(block.rows.as_ptr().cast(), size_of_val(block.rows));
        for (at, &tag) in tags.iter().enumerate() {
            let row = &block.rows[at * cells..][..cells];
            visit(
                tag,
                block.verbs.of(at),
                block.outcomes[at],
                block.ids[at],
                row,
            );
        }
    }
}

/// The memory of a lane's blocks.
pub(crate) struct Payload {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory; who uses which part when is the lane's protocol.
unsafe impl Send for Payload {}
// SAFETY: as above; `block` hands out parts by the lane's allocator, which has one owner.
unsafe impl Sync for Payload {}

impl Payload {
    pub(super) fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(LINE_BYTES).max(LINE_BYTES);
        let layout = Self::layout(bytes);
        // SAFETY: the size is not zero. Zeroed memory, so that every part is initialised.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        Self { memory, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096)
            .expect("lane settings are bounded far below the address space")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The block at `offset`, empty.
    ///
    /// # Safety
    /// No other block of this payload that is being written, is under way or is being read overlaps it.
    pub(crate) unsafe fn block(&self, offset: usize, layout: BlockLayout) -> BlockMemory {
        assert!(offset.is_multiple_of(LINE_BYTES) && offset + layout.bytes() <= self.bytes);
        // SAFETY: within the payload, as just checked.
        let (memory, tags, rows) = unsafe {
            let memory = self.memory.add(offset);
            (
                memory,
                memory.add(layout.tags()).cast(),
                memory.add(layout.rows()).cast(),
            )
        };
        BlockMemory {
            memory,
            layout,
            count: 0,
            verbs: Written::None,
            tags,
            rows,
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout; both ends of the lane are gone.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.bytes)) };
    }
}
