//! What must hold whatever the order of steps, the delays and the sizes of rings.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use super::{Choices, Setting, World};
use crate::error::Error;
use crate::id::{DirectId, RowId, SurrogateId, hash};
use crate::session::Verbs;
use crate::shard::Rows;
use crate::table::{Batch, Outcome, Schema, Table};

/// Runs a scenario for many seeds; prints the one that fails.
fn for_seeds(
    seeds: std::ops::Range<u64>,
    scenario: impl Fn(&Rc<World>) + std::panic::RefUnwindSafe,
) {
    for seed in seeds {
        let setting = Setting::chosen(&Choices::new(seed));
        let result = std::panic::catch_unwind(|| scenario(&World::new(seed, setting)));
        if let Err(failure) = result {
            eprintln!("seed {seed}, {setting:?}");
            std::panic::resume_unwind(failure);
        }
    }
}

fn keyed(world: &World) -> Table<[u64; 2]> {
    world.table("keyed", &Schema::cells(2).keyed())
}

#[test]
fn operations_of_one_client_on_one_row_happen_in_order() {
    for_seeds(0..150, |world| {
        let table = keyed(world);
        let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
        let mut pipelines: Vec<_> = clients
            .iter_mut()
            .map(|client| client.pipeline::<_, SurrogateId>(&table))
            .collect();
        let mut written = [0_u64; 4];
        let mut expected: Vec<BTreeMap<u64, Option<u64>>> = vec![BTreeMap::new(); 4];
        for _ in 0..400 {
            let who = world.choices.below(4) as usize;
            let key = SurrogateId(who as u64);
            let pipeline = &mut pipelines[who];
            if world.choices.below(3) == 0 {
                let ticket = pipeline.select(key).unwrap();
                expected[who].insert(ticket.0, (written[who] > 0).then_some(written[who]));
            } else {
                written[who] += 1;
                pipeline.upsert(key, &[written[who], who as u64]).unwrap();
            }
            if world.choices.below(8) == 0 {
                world.step();
            }
            if world.choices.below(5) == 0 {
                pipeline.flush().unwrap();
            }
        }
        for (who, mut pipeline) in pipelines.into_iter().enumerate() {
            let mut next = 0;
            while let Some((ticket, outcome)) = pipeline.wait().unwrap() {
                assert_eq!(ticket.0, next, "one shard answers in order");
                next += 1;
                let Some(value) = expected[who].remove(&ticket.0) else {
                    continue;
                };
                match (outcome, value) {
                    (Outcome::Selected(row), Some(value)) => assert_eq!(row, [value, who as u64]),
                    (Outcome::NotFound, None) => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(expected[who].is_empty(), "unanswered: {:?}", expected[who]);
        }
    });
}

#[test]
fn resident_that_floods_others_serves_those_who_flood_it() {
    for_seeds(0..100, |world| {
        let table = keyed(world);
        let shards = world.peers.shards();
        for index in 0..shards {
            let base = index as u64 * 10_000;
            let mut clients: Vec<_> = (0..3).map(|_| world.client()).collect();
            let mut pipelines: Vec<_> = clients
                .iter_mut()
                .map(|client| client.pipeline::<_, SurrogateId>(&table))
                .collect();
            for n in 0..300 {
                let pipeline = &mut pipelines[n as usize % 3];
                pipeline.insert(SurrogateId(base + n), &[n, 0]).unwrap();
            }
            pipelines
                .iter_mut()
                .for_each(|pipeline| pipeline.flush().unwrap());
            world.inside(index, |insider| {
                let keys: Vec<_> = (0..300).map(|n| SurrogateId(base + 1_000 + n)).collect();
                let rows: Vec<_> = keys.iter().map(|key| [key.0, 1]).collect();
                assert_eq!(
                    insider.insert_keyed_batch(&table, &keys, &rows).unwrap(),
                    300
                );
                let found = insider.select_batch(&table, &keys).unwrap();
                assert_eq!(found, rows.into_iter().map(Some).collect::<Vec<_>>());
            });
            for mut pipeline in pipelines {
                let mut inserted = 0;
                while let Some((_, outcome)) = pipeline.wait().unwrap() {
                    assert!(matches!(outcome, Outcome::Inserted(_)), "{outcome:?}");
                    inserted += 1;
                }
                assert_eq!(inserted, 100);
            }
        }
        assert_eq!(world.client().count(&table).unwrap(), 600 * shards as u64);
    });
}

#[test]
fn random_verbs_over_any_shards_match_a_model() {
    for_seeds(0..60, |world| {
        let mut case = Case {
            keyed: keyed(world),
            direct: world.table("direct", &Schema::cells(2)),
            client: world.client(),
            by_key: BTreeMap::new(),
            by_place: Vec::new(),
        };
        for step in 0..250 {
            case.step(world, step);
        }
        case.check_scan();
    });
}

/// A client, and what it must find.
struct Case {
    keyed: Table<[u64; 2]>,
    direct: Table<[u64; 2]>,
    client: super::Client<'static>,
    by_key: BTreeMap<u64, [u64; 2]>,
    by_place: Vec<(DirectId, Option<[u64; 2]>)>,
}

impl Case {
    fn step(&mut self, world: &World, step: u64) {
        let Self {
            keyed,
            direct,
            client,
            by_key,
            by_place,
        } = self;
        let key = world.choices.below(60);
        let row = [step, hash(step)];
        match world.choices.below(9) {
            0 => {
                let result = client.insert_keyed(keyed, SurrogateId(key), &row);
                match by_key.entry(key) {
                    Entry::Occupied(_) => assert_eq!(result, Err(Error::Duplicate { key })),
                    Entry::Vacant(entry) => {
                        assert_eq!(client.select(keyed, result.unwrap()).unwrap(), Some(row));
                        entry.insert(row);
                    }
                }
            }
            1 => {
                let there = client.upsert(keyed, SurrogateId(key), &row).unwrap();
                assert_eq!(there, by_key.insert(key, row).is_some());
            }
            2 => {
                let there = client.delete(keyed, SurrogateId(key)).unwrap();
                assert_eq!(there, by_key.remove(&key).is_some());
            }
            3 => {
                let there = client
                    .update_columns(keyed, SurrogateId(key), &[(1, step)])
                    .unwrap();
                let expected = by_key.get_mut(&key).map(|row| row[1] = step);
                assert_eq!(there, expected.is_some());
            }
            4 => by_place.push((client.insert(direct, &row).unwrap(), Some(row))),
            5 if !by_place.is_empty() => {
                let at = world.choices.below(by_place.len() as u64) as usize;
                let (id, old) = by_place[at];
                assert_eq!(client.delete(direct, id).unwrap(), old.is_some());
                by_place[at].1 = None;
            }
            6 => {
                let ids: Vec<_> = by_place.iter().map(|(id, _)| *id).collect();
                let rows = client.select_batch(direct, &ids).unwrap();
                assert_eq!(
                    rows,
                    by_place.iter().map(|(_, row)| *row).collect::<Vec<_>>()
                );
            }
            7 => check_batch(client, keyed, by_key, step),
            _ => {
                let row = client.select(keyed, SurrogateId(key)).unwrap();
                assert_eq!(row, by_key.get(&key).copied());
            }
        }
    }

    fn check_scan(&mut self) {
        let mut scanned = BTreeMap::new();
        let visit = |_: &mut _, id, row| {
            assert!(scanned.insert(id, row).is_none());
            std::ops::ControlFlow::Continue(())
        };
        self.client.scan(&self.keyed, visit).unwrap();
        let mut scanned: Vec<_> = scanned.into_values().collect();
        let mut expected: Vec<_> = self.by_key.values().copied().collect();
        scanned.sort_unstable();
        expected.sort_unstable();
        assert_eq!(scanned, expected);
    }
}

fn check_batch(
    client: &mut impl Verbs,
    table: &Table<[u64; 2]>,
    model: &mut BTreeMap<u64, [u64; 2]>,
    step: u64,
) {
    let mut batch = Batch::<[u64; 2], SurrogateId>::new(table, 20);
    let mut expected = Vec::new();
    for n in 0..20 {
        let key = hash(step << 8 | n) % 60;
        let row = [step, n];
        let old = model.get(&key).copied();
        match n % 4 {
            0 => {
                batch.update(SurrogateId(key), &row).unwrap();
                expected.push(if old.is_some() {
                    Outcome::Updated
                } else {
                    Outcome::NotFound
                });
                if old.is_some() {
                    model.insert(key, row);
                }
            }
            1 => {
                batch.delete(SurrogateId(key)).unwrap();
                model.remove(&key);
                expected.push(if old.is_some() {
                    Outcome::Deleted
                } else {
                    Outcome::NotFound
                });
            }
            _ => {
                batch.select(SurrogateId(key)).unwrap();
                expected.push(old.map_or(Outcome::NotFound, Outcome::Selected));
            }
        }
    }
    client.run(&mut batch).unwrap();
    assert_eq!(batch.outcomes(), expected);
}

#[test]
fn transactions_that_fail_or_panic_leave_no_trace() {
    for_seeds(0..100, |world| {
        let table = keyed(world);
        let mut client = world.client();
        let shards = world.peers.shards();
        let mut own = (0..)
            .map(SurrogateId)
            .filter(|key| key.shard_of(shards) == 0);
        let keys: Vec<SurrogateId> = own.by_ref().take(20).collect();
        let mut spare: Vec<SurrogateId> = own.take(100).collect();
        for &key in &keys {
            client.insert_keyed(&table, key, &[100, 0]).unwrap();
        }
        for _ in 0..100 {
            let from = keys[world.choices.below(keys.len() as u64) as usize];
            let to = keys[world.choices.below(keys.len() as u64) as usize];
            let (fate, extra) = (world.choices.below(4), spare.last().copied());
            let result = client.on(0, |context| {
                let mut rows = context.rows(&table)?;
                shuffle_to_and_fro(&mut rows, from, to, extra, fate)
            });
            match fate {
                0 => assert_eq!(
                    result,
                    Err(Error::Panicked {
                        message: "as planned".to_owned()
                    })
                ),
                1 => assert_eq!(result, Err(Error::Duplicate { key: from.0 })),
                _ => {
                    result.unwrap();
                    spare.pop();
                }
            }
            for &key in &keys {
                let row = client.select(&table, key).unwrap();
                assert_eq!(row, Some([100, 0]), "{key:?} after fate {fate}");
            }
            if let Some(extra) = spare.last() {
                assert_eq!(client.select(&table, *extra).unwrap(), None);
            }
        }
    });
}

/// Changes rows in every way; if it comes to its end, they are as before, and `extra` is there.
fn shuffle_to_and_fro(
    rows: &mut Rows<'_, [u64; 2]>,
    from: SurrogateId,
    to: SurrogateId,
    extra: Option<SurrogateId>,
    fate: u64,
) -> Result<(), Error> {
    rows.update(from, &[90, 1])?;
    rows.delete(to)?;
    if let Some(extra) = extra {
        rows.insert_keyed(extra, &[1, 1])?;
    }
    rows.insert_keyed(to, &[110, 2])?;
    match fate {
        0 => std::panic::panic_any("as planned"),
        1 => {
            rows.insert_keyed(from, &[0, 0])?;
        }
        _ => {}
    }
    rows.update_columns(to, &[(0, 100), (1, 0)])?;
    rows.update(from, &[100, 0])?;
    Ok(())
}

#[test]
fn client_that_goes_away_leaves_its_work_done_and_blocks_nobody() {
    for_seeds(0..100, |world| {
        let table = keyed(world);
        for round in 0..10 {
            let mut gone = world.client();
            let mut pipeline = gone.pipeline::<_, SurrogateId>(&table);
            for n in 0..50 {
                pipeline
                    .insert(SurrogateId(round * 100 + n), &[round, n])
                    .unwrap();
            }
            pipeline.flush().unwrap();
            // Dropping waits for the answers; forgetting the pipeline does not.
            if world.choices.below(2) == 0 {
                std::mem::forget(pipeline);
            } else {
                drop(pipeline);
            }
            drop(gone);
        }
        let mut client = world.client();
        while client.count(&table).unwrap() < 500 {
            world.step();
        }
        assert_eq!(
            client.select(&table, SurrogateId(949)).unwrap(),
            Some([9, 49])
        );
    });
}
