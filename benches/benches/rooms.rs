//! Single rooms of the engine beside what one would use instead.

use ancile::internals::{ArenaSlot, IndexProbe, RingHop, Tick};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_queue::ArrayQueue;
use hashbrown::HashMap;
use std::hint::black_box;

/// Messages sent before they are received.
const MESSAGES: u64 = 64;

/// Keys of the index, far more than a cache holds.
const KEYS: u64 = 4_000_000;

/// Rows of the shard that is stepped.
const ROWS: u64 = 1_000_000;

fn ring(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring, 64 messages of 56 bytes");
    group.throughput(Throughput::Elements(MESSAGES));
    let mut ring = RingHop::new(128);
    group.bench_function("ancile", |bencher| {
        bencher.iter(|| ring.hop(black_box(MESSAGES)))
    });
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(128);
    group.bench_function("rtrb", |bencher| {
        bencher.iter(|| {
            let sent =
                (0..black_box(MESSAGES)).take_while(|&message| producer.push([message; 7]).is_ok());
            assert_eq!(sent.count() as u64, MESSAGES);
            let received = std::iter::from_fn(|| consumer.pop().ok());
            received.map(|message| message[6]).sum::<u64>()
        });
    });
    let queue = ArrayQueue::new(128);
    group.bench_function("crossbeam ArrayQueue", |bencher| {
        bencher.iter(|| {
            let sent =
                (0..black_box(MESSAGES)).take_while(|&message| queue.push([message; 7]).is_ok());
            assert_eq!(sent.count() as u64, MESSAGES);
            std::iter::from_fn(|| queue.pop())
                .map(|message| message[6])
                .sum::<u64>()
        });
    });
    group.finish();
}

fn slot(criterion: &mut Criterion) {
    let mut slots = ArenaSlot::new();
    criterion.bench_function("slot: insert and delete a row of 10 columns", |bencher| {
        bencher.iter(|| slots.reuse(black_box(&[7; 10])));
    });
}

fn index(criterion: &mut Criterion) {
    // An odd multiplier walks over all keys without order.
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let keys: Vec<u64> = (0..KEYS).map(key).collect();
    let map: HashMap<u64, u32> = keys.iter().copied().zip(0..).collect();
    let index = IndexProbe::new(keys);
    let mut group = criterion.benchmark_group("index, one probe at a time");
    let mut n = 0;
    let mut next = move || {
        n = (n + 1_000_003) % KEYS;
        key(n)
    };
    group.bench_function("ancile", |bencher| {
        bencher.iter_batched(
            &mut next,
            |key| index.find(key),
            BatchSize::NumIterations(1 << 12),
        );
    });
    group.bench_function("hashbrown", |bencher| {
        bencher.iter_batched(
            &mut next,
            |key| map.get(&key).copied(),
            BatchSize::NumIterations(1 << 12),
        );
    });
    group.finish();
}

fn tick(criterion: &mut Criterion) {
    let mut shard = Tick::new(ROWS);
    let mut group = criterion.benchmark_group("tick");
    group.throughput(Throughput::Elements(64));
    let mut from = 0;
    group.bench_function(
        "a block of 64 selects, there and back on one core",
        |bencher| {
            bencher.iter(|| {
                from = (from + 64 * 7_919) % ROWS as usize;
                shard.select_64(from)
            });
        },
    );
    group.finish();
}

criterion_group!(rooms, ring, slot, index, tick);
criterion_main!(rooms);
