//! An idle engine costs nothing, and a crowded one is fair.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ancile::{Resident, SurrogateId, Verbs};

use super::support::{builder, is_alone, keyed, processor_nanos, watchdog};

#[test]
fn idle_engine_uses_less_than_a_hundredth_of_a_processor_a_shard() {
    let _watchdog = watchdog(60);
    if !is_alone() {
        return;
    }
    for shards in [2, 14] {
        let engine = builder(shards).arena_bytes(8 << 20).build().unwrap();
        let table = keyed(&engine, "k");
        let mut session = engine.session().unwrap();
        let keys: Vec<_> = (0..1000).map(SurrogateId).collect();
        session
            .insert_keyed_batch(&table, &keys, &[[1, 2]; 1000])
            .unwrap();
        let inside = table.clone();
        let work = move |resident: &mut Resident<'_>| resident.count(&inside).unwrap();
        engine.on_every_shard(work).unwrap();
        // Unread answers wake nobody.
        let mut waiting = engine.session().unwrap();
        let mut pipeline = waiting.pipeline(&table);
        for &key in &keys {
            pipeline.select(key).unwrap();
        }
        pipeline.flush().unwrap();
        std::thread::sleep(Duration::from_millis(300));

        let (start, used) = (Instant::now(), processor_nanos());
        std::thread::sleep(Duration::from_secs(2));
        let used = u128::from(processor_nanos() - used);
        let passed = start.elapsed().as_nanos();
        println!("{shards} shards: {used} ns of {passed} ns");
        assert!(
            used < passed / 100 * shards as u128,
            "{used} ns of {passed} ns"
        );

        assert_eq!(session.select(&table, SurrogateId(5)), Ok(Some([1, 2])));
        assert_eq!(session.count(&table), Ok(1000));
        let mut answered = 0;
        while pipeline.wait().unwrap().is_some() {
            answered += 1;
        }
        assert_eq!(answered, 1000);
    }
}

#[test]
fn every_shard_of_many_does_its_share_while_all_are_busy() {
    let _watchdog = watchdog(120);
    const SHARDS: usize = 14;
    const OPERATIONS: u64 = 3000;
    let engine = builder(SHARDS).arena_bytes(16 << 20).build().unwrap();
    let table = keyed(&engine, "k");
    let done: Arc<Vec<AtomicU64>> = Arc::new((0..SHARDS).map(|_| AtomicU64::new(0)).collect());
    let (own, inside) = (Arc::clone(&done), table.clone());
    // How far the slowest was when the first was ready.
    let work = move |resident: &mut Resident<'_>| {
        let shard = resident.shard();
        let mine = &own[shard];
        for n in 0..OPERATIONS / 10 {
            let keys: Vec<_> = (0..10)
                .map(|k| SurrogateId((shard as u64) << 32 | (n * 10 + k)))
                .collect();
            let added = resident.insert_keyed_batch(&inside, &keys, &[[n, n]; 10]);
            mine.fetch_add(added.unwrap() as u64, Ordering::Relaxed);
        }
        own.iter()
            .map(|done| done.load(Ordering::Relaxed))
            .min()
            .unwrap()
    };
    let slowest = engine.on_every_shard(work).unwrap();
    let shares: Vec<_> = done
        .iter()
        .map(|done| done.load(Ordering::Relaxed))
        .collect();
    assert_eq!(shares, [OPERATIONS; SHARDS]);
    println!(
        "the slowest had {} when the first was ready",
        slowest.iter().min().unwrap()
    );
    assert!(
        slowest.iter().all(|&done| done > 0),
        "a shard has starved: {slowest:?}"
    );
    let mut session = engine.session().unwrap();
    assert_eq!(session.count(&table), Ok(OPERATIONS * SHARDS as u64));
}
