//! Settings out of their bounds, and the caller's affinity.

use ancile::topology::{Machine, NumberSet, current_affinity, set_current_affinity};
use ancile::{Engine, EngineBuilder, OpenError};

use super::support::{Holdings, builder, is_alone, watchdog};

/// Why an engine with these settings does not open.
fn refusal(name: &str, builder: EngineBuilder) -> OpenError {
    match builder.build() {
        Ok(engine) => panic!("{name} opened {} shards", engine.shards()),
        Err(error) => error,
    }
}

#[test]
fn settings_out_of_bounds_are_refused_and_leave_nothing() {
    let _watchdog = watchdog(60);
    if !is_alone() {
        return;
    }
    // The allocator keeps some mappings for each thread that ever was, up to a bound; a leak would
    // show in each of the 180 refusals.
    refuse_all();
    let before = Holdings::now();
    (0..20).for_each(|_| refuse_all());
    let after = Holdings::now();
    println!("{before:?} {after:?}");
    assert!(after.threads <= before.threads);
    assert_eq!(after.descriptors, before.descriptors);
    assert!(after.mappings <= before.mappings + 40);
}

fn refuse_all() {
    let settings: [(&str, EngineBuilder, u64); 10] = [
        ("shards", builder(0), 0),
        ("shards", builder(1025), 1025),
        ("shards", builder(5000), 5000),
        ("shards", builder(usize::MAX), u64::MAX),
        ("block_operations", builder(1).block_operations(0), 0),
        ("block_operations", builder(1).block_operations(1025), 1025),
        ("lane_requests", builder(1).lane_requests(0), 0),
        (
            "lane_requests",
            builder(1).lane_requests(usize::MAX),
            u64::MAX,
        ),
        ("arena_bytes", builder(1).arena_bytes(0), 0),
        ("pus", builder(1).pus(&[]), 0),
    ];
    for (setting, builder, given) in settings {
        match refusal(setting, builder) {
            OpenError::Setting {
                name,
                value,
                bounds,
            } => {
                assert_eq!((name, value), (setting, given));
                assert!(!bounds.is_empty());
            }
            other => panic!("{setting} {given}: {other}"),
        }
    }
    for bytes in [1, 4096, (4 << 20) - 1] {
        let error = refusal("arena_bytes", builder(1).arena_bytes(bytes));
        assert!(matches!(error, OpenError::Setting { .. }), "{error}");
    }
    for bytes in [u64::MAX, u64::MAX - 4096, 1 << 63, 1 << 48] {
        for shards in [1, 2, 14] {
            let error = refusal("arena_bytes", builder(shards).arena_bytes(bytes));
            assert!(matches!(error, OpenError::Memory { .. }), "{error}");
            assert!(error.to_string().contains("arena_bytes"), "{error}");
        }
    }
    let allowed = Machine::discover().allowed_pus;
    let here = allowed.first().unwrap();
    for pus in [
        vec![here, here],
        vec![4095],
        vec![u32::MAX],
        vec![here, 4095],
    ] {
        let error = refusal("pus", Engine::builder().pus(&pus).arena_bytes(8 << 20));
        assert!(matches!(error, OpenError::Placement(_)), "{pus:?}: {error}");
    }
}

#[test]
fn settings_at_their_bounds_are_accepted() {
    let _watchdog = watchdog(60);
    let smallest = builder(1)
        .arena_bytes(4 << 20)
        .lane_requests(1)
        .block_operations(1);
    let largest = builder(1).lane_requests(1 << 14).block_operations(1024);
    for builder in [smallest, largest] {
        let engine = builder.build().unwrap();
        let table = super::support::unkeyed(&engine, "t");
        let mut session = engine.session().unwrap();
        use ancile::Verbs;
        let mut ids = Vec::new();
        session
            .insert_batch(&table, &[[1, 2]; 5000], &mut ids)
            .unwrap();
        let rows = session.select_batch(&table, &ids).unwrap();
        assert!(rows.iter().all(|&row| row == Some([1, 2])));
    }
}

#[test]
fn affinity_of_the_caller_is_left_alone_and_does_not_change_the_shards() {
    let _watchdog = watchdog(60);
    // Affinity is a thread's own, and new ones inherit it: on a thread that is over afterwards.
    let checked = std::thread::spawn(|| {
        let all = current_affinity().unwrap();
        let open = || Engine::builder().arena_bytes(8 << 20).build().unwrap();
        let first = open();
        let shards = first.shards();
        assert_eq!(current_affinity().unwrap(), all, "after open");
        first.close().unwrap();
        assert_eq!(current_affinity().unwrap(), all, "after close");
        for pu in all.iter() {
            let mut one = NumberSet::new();
            one.insert(pu);
            set_current_affinity(&one).unwrap();
            let engine = open();
            assert_eq!(current_affinity().unwrap(), one, "after open, pinned");
            assert_eq!(engine.shards(), shards, "opened by a pinned thread");
            drop(engine);
            assert_eq!(current_affinity().unwrap(), one, "after close, pinned");
        }
        set_current_affinity(&all).unwrap();
        assert_eq!(open().shards(), shards);
    });
    checked.join().unwrap();
}

#[test]
fn shards_run_where_they_were_asked_to() {
    let _watchdog = watchdog(60);
    let machine = Machine::discover();
    let pus: Vec<u32> = machine.allowed_pus.iter().collect();
    let reversed: Vec<u32> = pus.iter().rev().copied().collect();
    for pus in [pus, reversed] {
        let engine = Engine::builder()
            .pus(&pus)
            .arena_bytes(8 << 20)
            .build()
            .unwrap();
        assert_eq!(engine.shards(), pus.len());
        let runs = engine
            .on_every_shard(|_| current_affinity().unwrap())
            .unwrap();
        for (affinity, &pu) in runs.iter().zip(&pus) {
            assert_eq!(affinity.iter().collect::<Vec<_>>(), [pu]);
        }
    }
    let free = builder(2).pin(false).build().unwrap();
    let here = current_affinity().unwrap();
    let runs = free
        .on_every_shard(|_| current_affinity().unwrap())
        .unwrap();
    assert!(runs.iter().all(|affinity| *affinity == here));
}
