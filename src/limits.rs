//! Every bound of the engine, and the relations between them.
//!
//! A bound that a user can meet is documented with the public item that meets it; tests shrink the
//! ones that are settings (ring capacity, block capacity) to 1, 2 and 3.

/// Shards of one engine: ten bits of a [`DirectId`](crate::DirectId).
pub(crate) const SHARDS_MAX: usize = 1 << 10;

/// Rows of one table in one shard: 32 bits of a [`DirectId`](crate::DirectId), less the value that marks no slot.
pub(crate) const SLOTS_MAX: u64 = (1 << 32) - 1;

/// How often a slot may be reused: 22 bits of a [`DirectId`](crate::DirectId). A slot that has used
/// them up is retired, so that a stale id never finds a later row.
pub(crate) const GENERATION_MAX: u32 = (1 << 22) - 1;

/// Columns of a table.
pub(crate) const COLUMNS_MAX: usize = 1024;

/// Indexes of one table of records, beside its key's.
pub(crate) const INDEXES_MAX: usize = 64;

/// Bytes of a text.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Tables of one engine.
pub(crate) const TABLES_MAX: usize = 1 << 16;

/// Bytes of a table's or a column's name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Bytes of an encoded key of an ordered tree. GT.M has 1,019; two entries of such keys fit a page.
pub(crate) const KEY_BYTES_MAX: usize = 2000;

/// Bytes that the values of a record may take in an ordered index; the record's slot takes the rest.
pub const INDEXED_BYTES_MAX: usize = KEY_BYTES_MAX - 4;

/// Bytes of a value of an ordered tree.
pub(crate) const VALUE_BYTES_MAX: usize = 16 << 20;

/// Significant decimal digits of a number in a key, as in GT.M.
pub(crate) const NUMBER_DIGITS_MAX: usize = 18;

/// Exponents of the first significant digit of a number in a key, as in GT.M.
pub(crate) const NUMBER_EXPONENTS: std::ops::RangeInclusive<i32> = -43..=46;

/// The unit of the arena: extents are multiples of it.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A huge page of x86-64; arenas are aligned to it.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A slab is the largest power-of-two number of rows that fits this.
pub(crate) const SLAB_BYTES_MAX: usize = HUGE_PAGE_BYTES;

/// The smallest arena that an engine accepts.
pub(crate) const ARENA_BYTES_MIN: u64 = 4 << 20;

/// Before-images that any one operation may leave beside those of its rows: those of index entries,
/// heads and extents.
pub(crate) const SCOPE_BYTES_MIN: usize = if cfg!(test) { 8 << 10 } else { 64 << 10 };

/// Before-images of a scope after which it ends as soon as it may.
pub(crate) const SCOPE_BYTES_LONG: usize = if cfg!(test) { 256 } else { 1 << 20 };

/// How far ahead of its use a row's memory is asked for. Two independent schedules (rolling window,
/// 64-operation batch) are fastest between 24 and 48 on the processors measured.
pub(crate) const PREFETCH_DISTANCE: usize = 48;

/// How far ahead of its row an index bucket is asked for, beyond [`PREFETCH_DISTANCE`].
pub(crate) const PROBE_DISTANCE: usize = 16;

/// Bytes of each file of a journal.
pub(crate) const JOURNAL_SEGMENT_BYTES_MIN: u64 = 1 << 20;
pub(crate) const JOURNAL_SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// A shard's heap for its own containers (catalog, undo log), at most.
pub(crate) const HEAP_BYTES: usize = 256 << 20;

/// Operations of one block on its way to another shard, unless the builder says otherwise.
pub(crate) const BLOCK_OPERATIONS: usize = 128;

/// Bounds of the builder's block size.
pub(crate) const BLOCK_OPERATIONS_MAX: usize = 1024;

/// Requests of one lane (session to shard, or shard to shard) that may be under way.
pub(crate) const LANE_REQUESTS: usize = 64;

/// Bounds of the builder's lane capacity.
pub(crate) const LANE_REQUESTS_MAX: usize = 1 << 14;

/// Payload memory of all lanes of one client: about one second-level cache, so that a line is not
/// written again while the other side still holds it, and yet stays in a cache.
pub(crate) const LANE_BYTES_TOTAL: usize = 1 << 20;

/// Payload memory of one lane, at least.
pub(crate) const LANE_BYTES_MIN: usize = 64 << 10;

/// Declared transactions that travel in one proposal.
pub(crate) const PROPOSAL_MEMBERS: usize = 32;

/// Proposals of one client that may be under way.
pub(crate) const PROPOSALS_UNDER_WAY: usize = 16;

/// Proposals on their way from one sender to one shard that a ring has room for; more wait with the
/// sender.
pub(crate) const RELAY_SLOTS: usize = if cfg!(test) { 2 } else { 64 };

/// How often that time is doubled for a transaction that was too slow for it: 160 ms at most.
pub(crate) const LEASE_DOUBLINGS_MAX: u32 = 5;

/// How long a transaction that failed too often may have its rows to itself, to be tried once more.
pub(crate) const LEASE_MICROS: u64 = 5_000;

/// Tries of a transaction before it is given a lease.
pub(crate) const TRIES_BEFORE_LEASE: u32 = if cfg!(test) { 2 } else { 8 };

/// Rows that a shard counts as its hottest.
pub(crate) const HOT_ROWS: usize = 16;

/// Operations that code in a shard does on its own rows before others have their turn.
pub(crate) const OPERATIONS_UNSERVED_MAX: usize = 64;

/// As so many of these counts the borrowing of a table's rows by code in a shard.
pub(crate) const OPERATIONS_PER_ROWS: usize = 8;

/// Requests that one tick takes from one lane.
pub(crate) const TICK_REQUESTS_PER_LANE: usize = 4;

/// Proposals that one tick takes from one sender.
pub(crate) const TICK_PROPOSALS: usize = 16;

/// Records that travel to their shards together.
pub(crate) const RECORDS_PER_CALL: usize = 1024;

/// Keys of globals that travel to their shards together.
pub(crate) const GLOBALS_PER_CALL: usize = if cfg!(test) { 8 } else { 1024 };

/// Bytes of values that travel together, at least one value.
pub(crate) const GLOBAL_BYTES_PER_CALL: usize = 4 << 20;

/// Keys of a tree that go down together, or whose changes are one scope.
pub(crate) const GLOBALS_PER_GROUP: usize = 64;

/// Nodes that a scan's block has, the first one and, after doubling, at most; and the bytes after which
/// it ends.
pub(crate) const SCAN_NODES_MIN: usize = if cfg!(test) { 2 } else { 64 };
pub(crate) const SCAN_NODES_MAX: usize = if cfg!(test) { 8 } else { 4096 };
pub(crate) const SCAN_BYTES: usize = 1 << 20;

/// Records that a block of a scan by an ordered index has, the first one and, after doubling, at most.
pub(crate) const RANGE_RECORDS_MIN: usize = if cfg!(test) { 2 } else { 64 };
pub(crate) const RANGE_RECORDS_MAX: usize = if cfg!(test) { 8 } else { 512 };

/// Slots whose records enter a new index before others have their turn.
pub(crate) const BUILD_SLOTS: u32 = 4096;

/// How far ahead of its use a record's memory is asked for.
pub(crate) const RECORD_DISTANCE: usize = 16;

/// Slots that one scan request visits before it lets others in.
pub(crate) const SCAN_SLOTS_PER_REQUEST: u32 = 4096;

/// Words of records after which such a request ends before: 4 MiB.
pub(crate) const SCAN_WORDS_PER_REQUEST: usize = 512 << 10;

const _: () = assert!((ARENA_BYTES_MIN as usize).is_multiple_of(HUGE_PAGE_BYTES));
const _: () = assert!(PROBE_DISTANCE <= PREFETCH_DISTANCE);
const _: () = assert!(COLUMNS_MAX * 8 + 16 <= SLAB_BYTES_MAX);
const _: () =
    assert!(BLOCK_OPERATIONS <= BLOCK_OPERATIONS_MAX && LANE_REQUESTS <= LANE_REQUESTS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every constant that the book's tables name.
    const NAMED: &[(&str, u64)] = &[
        ("SHARDS_MAX", SHARDS_MAX as u64),
        ("TABLES_MAX", TABLES_MAX as u64),
        ("NAME_BYTES_MAX", NAME_BYTES_MAX as u64),
        ("COLUMNS_MAX", COLUMNS_MAX as u64),
        ("INDEXES_MAX", INDEXES_MAX as u64),
        ("SLOTS_MAX", SLOTS_MAX),
        ("GENERATION_MAX", GENERATION_MAX as u64),
        ("TEXT_BYTES_MAX", TEXT_BYTES_MAX as u64),
        ("KEY_BYTES_MAX", KEY_BYTES_MAX as u64),
        ("VALUE_BYTES_MAX", VALUE_BYTES_MAX as u64),
        ("INDEXED_BYTES_MAX", INDEXED_BYTES_MAX as u64),
        ("NUMBER_DIGITS_MAX", NUMBER_DIGITS_MAX as u64),
        ("ARENA_BYTES_MIN", ARENA_BYTES_MIN),
        ("JOURNAL_SEGMENT_BYTES_MIN", JOURNAL_SEGMENT_BYTES_MIN),
        ("JOURNAL_SEGMENT_BYTES_MAX", JOURNAL_SEGMENT_BYTES_MAX),
        ("BLOCK_OPERATIONS", BLOCK_OPERATIONS as u64),
        ("BLOCK_OPERATIONS_MAX", BLOCK_OPERATIONS_MAX as u64),
        ("LANE_REQUESTS", LANE_REQUESTS as u64),
        ("LANE_REQUESTS_MAX", LANE_REQUESTS_MAX as u64),
        ("OPERATIONS_UNSERVED_MAX", OPERATIONS_UNSERVED_MAX as u64),
        ("SCAN_SLOTS_PER_REQUEST", SCAN_SLOTS_PER_REQUEST as u64),
        ("BUILD_SLOTS", BUILD_SLOTS as u64),
        ("HOT_ROWS", HOT_ROWS as u64),
        ("LEASE_MICROS", LEASE_MICROS),
        ("HEAP_BYTES", HEAP_BYTES as u64),
    ];

    #[test]
    fn every_limit_in_the_book_is_its_constant() {
        let text = include_str!("doc/limits.md");
        let mut told = Vec::new();
        for line in text.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells[3].trim_matches('`');
            if name != "constant" && !name.starts_with('-') {
                let number = cells[2].replace(',', "").parse::<u64>();
                told.push((name, number.unwrap_or_else(|_| panic!("no number: {line}"))));
            }
        }
        assert_eq!(told, NAMED);
        let words = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace(',', "");
        assert!(words.contains(&format!("{LANE_BYTES_TOTAL} bytes (`LANE_BYTES_TOTAL`)")));
        assert!(words.contains(&format!("{LANE_BYTES_MIN} (`LANE_BYTES_MIN`)")));
    }
}
