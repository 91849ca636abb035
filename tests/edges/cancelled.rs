//! Futures that are dropped before their end, at every moment: each operation has happened once or
//! not at all, and the session can be used as if nothing had been.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ancile::{
    AsyncSession, AsyncTransaction, Batch, DirectId, Engine, Error, Isolation, Outcome, Schema,
    Session, SurrogateId, Table, TransactionOptions, Verbs,
};

use super::executor::{block_on, partly, run_all};
use super::support::{Pair, Random, builder, engine, hold, keyed, keys_of, unkeyed, watchdog};

/// No future here needs more polls than this.
const POLLS_MAX: usize = 10_000;

fn serializable() -> TransactionOptions {
    TransactionOptions::new(Isolation::Serializable)
}

/// An engine whose rings are so small that a batch waits often.
fn narrow() -> Engine {
    builder(2)
        .lane_requests(2)
        .block_operations(4)
        .build()
        .unwrap()
}

/// Runs an attempt for each number of polls, until one comes to its end; says how many that needs.
fn for_each_poll(mut attempt: impl FnMut(usize) -> bool) -> usize {
    (0..POLLS_MAX).find(|&polls| attempt(polls)).unwrap()
}

/// Waits until every commit that was on its way in a shard has come to its end there.
fn settle(session: &mut Session, shards: usize) {
    for _ in 0..2 {
        for shard in 0..shards {
            session.on(shard, |_| Ok::<_, Error>(())).unwrap();
        }
    }
}

#[test]
fn keyed_insert_dropped_at_any_poll_has_added_each_row_once_or_not() {
    let _watchdog = watchdog(120);
    let engine = narrow();
    let table = keyed(&engine, "k");
    let mut session = engine.async_session().unwrap();
    let mut total = 0;
    let mut some = 0;
    let polls = for_each_poll(|polls| {
        let keys: Vec<_> = (0..64)
            .map(|n| SurrogateId((polls * 64 + n) as u64))
            .collect();
        let rows: Vec<Pair> = keys.iter().map(|key| [key.0, polls as u64]).collect();
        let added = session.insert_keyed_batch(&table, &keys, &rows);
        let added = block_on(partly(added, polls));
        let found = block_on(session.select_batch(&table, &keys)).unwrap();
        let there = found.iter().flatten().count();
        for (found, row) in found.iter().zip(&rows) {
            assert!(found.is_none_or(|found| found == *row));
        }
        assert!(polls > 0 || there == 0, "not polled, and yet sent");
        assert!(added.as_ref().is_none_or(|added| *added == Ok(64)));
        some += usize::from(there > 0 && there < 64);
        // Nothing comes later.
        let again = session.insert_keyed_batch(&table, &keys, &rows);
        assert_eq!(block_on(again), Ok(64 - there));
        total += 64;
        assert_eq!(block_on(session.count(&table)), Ok(total));
        added.is_some()
    });
    println!("{polls} polls, {some} attempts added a part");
    assert!(polls > 2 && some > 0);
}

#[test]
fn insert_dropped_at_any_poll_has_added_each_row_once_or_not() {
    let _watchdog = watchdog(120);
    let engine = narrow();
    let table = unkeyed(&engine, "u");
    let (mut session, mut reader) = (engine.async_session().unwrap(), engine.session().unwrap());
    let mut ids = Vec::new();
    let polls = for_each_poll(|polls| {
        let rows: Vec<Pair> = (0..64).map(|n| [polls as u64, n]).collect();
        let before = ids.len();
        let added = block_on(partly(session.insert_batch(&table, &rows, &mut ids), polls));
        let expected = if added.is_some() { 64 } else { 0 };
        assert_eq!(ids.len() - before, expected, "no half list of ids");
        // The next use waits for what was sent.
        let count = block_on(session.count(&table)).unwrap();
        let mut times = BTreeMap::new();
        let visit = |_: &mut Session, _, row: Pair| {
            *times.entry(row).or_insert(0) += 1;
            ControlFlow::Continue(())
        };
        reader.scan(&table, visit).unwrap();
        assert_eq!(times.len() as u64, count, "a row was added twice");
        added.is_some()
    });
    assert!(polls > 2);
    let found = block_on(session.select_batch(&table, &ids)).unwrap();
    assert!(found.iter().all(Option::is_some));
}

#[test]
fn mixture_dropped_at_any_poll_is_not_taken_for_what_comes_next() {
    let _watchdog = watchdog(120);
    let engine = narrow();
    let table = keyed(&engine, "k");
    let mut session = engine.async_session().unwrap();
    let keys: Vec<_> = (0..64).map(SurrogateId).collect();
    block_on(session.insert_keyed_batch(&table, &keys, &[[0, 0]; 64])).unwrap();
    let mut batch = Batch::<Pair, SurrogateId>::new(&table, 64);
    let polls = for_each_poll(|polls| {
        batch.clear();
        for &key in &keys {
            if key.0 % 2 == 0 {
                batch.update(key, &[key.0, polls as u64]).unwrap();
            } else {
                batch.select(key).unwrap();
            }
        }
        let run = block_on(partly(session.run(&mut batch), polls));
        assert_eq!(batch.outcomes().len(), if run.is_some() { 64 } else { 0 });
        // Answers to another question, with other tags, of the same lanes.
        let rows = block_on(session.select_batch(&table, &keys)).unwrap();
        for (key, row) in keys.iter().zip(rows) {
            let [value, changed] = row.unwrap();
            assert!(value == 0 || value == key.0 && key.0 % 2 == 0);
            assert!(changed <= polls as u64);
        }
        block_on(session.run(&mut batch)).unwrap();
        let is_done =
            |outcome: &Outcome<Pair>| matches!(outcome, Outcome::Updated | Outcome::Selected(_));
        assert!(batch.outcomes().iter().all(is_done));
        run.is_some()
    });
    assert!(polls > 2);
}

#[test]
fn closure_dropped_at_any_poll_runs_once_if_it_was_sent() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let runs = Arc::new(AtomicU64::new(0));
    for is_used_again in [true, false] {
        for is_held in [true, false] {
            for polls in 0..3 {
                let before = runs.load(Ordering::SeqCst);
                let mut session = engine.async_session().unwrap();
                let held = is_held.then(|| hold(&engine, 1));
                let inside = Arc::clone(&runs);
                let closure = move |_: &mut ancile::Context<'_>| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Error>(inside)
                };
                // Held, it would not be woken a second time.
                let polls = if is_held { polls.min(1) } else { polls };
                let ran = block_on(partly(session.on(1, closure), polls));
                assert!(ran.is_none() || polls > 0 && !is_held);
                drop(ran);
                if is_held {
                    assert_eq!(runs.load(Ordering::SeqCst), before);
                }
                drop(held);
                if is_used_again {
                    block_on(session.on(1, |_| Ok::<_, Error>(()))).unwrap();
                } else {
                    drop(session);
                }
                // The closure, or what it returned, is dropped by whoever has it last.
                while Arc::strong_count(&runs) > 1 {
                    std::thread::yield_now();
                }
                let expected = before + u64::from(polls > 0);
                assert_eq!(runs.load(Ordering::SeqCst), expected, "{polls} polls");
            }
        }
    }
}

#[test]
fn result_that_nobody_takes_may_panic_when_it_is_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    for is_used_again in [true, false] {
        let mut session = engine.async_session().unwrap();
        let (release, task) = hold(&engine, 1);
        let left = block_on(partly(session.on(1, |_| Ok::<_, Error>(Bomb)), 1));
        assert!(left.is_none());
        drop(release);
        if is_used_again {
            assert_eq!(block_on(session.count(&table)), Ok(0));
        }
        drop(session);
        task.join().unwrap();
        assert_eq!(engine.session().unwrap().count(&table), Ok(0));
    }
}

#[test]
fn transfer_dropped_at_any_poll_has_happened_as_a_whole_or_not_at_all() {
    let _watchdog = watchdog(120);
    let engine = engine(3);
    let (accounts, log) = (keyed(&engine, "accounts"), unkeyed(&engine, "log"));
    let (mut session, mut reader) = (engine.async_session().unwrap(), engine.session().unwrap());
    let keys: Vec<_> = (0..3)
        .map(|shard| keys_of(&engine, &accounts, shard).next().unwrap())
        .collect();
    for &key in &keys {
        reader
            .insert_keyed(&accounts, key, &[1_000_000, 0])
            .unwrap();
    }
    let (mut happened, mut in_vain, mut left_and_happened) = (0, 0, 0);
    for round in 0..20 {
        for_each_poll(|polls| {
            let transfer = transfer(&mut session, &accounts, &log, &keys);
            let ended = block_on(partly(transfer, polls));
            let is_used_again = round % 2 == 0;
            if is_used_again {
                block_on(session.select(&accounts, keys[0])).unwrap();
            } else {
                session = engine.async_session().unwrap();
            }
            settle(&mut reader, 3);
            let rows = reader.select_batch(&accounts, &keys).unwrap();
            let now = rows[0].unwrap()[1];
            assert!(now == happened || now == happened + 1);
            assert!(ended.is_none() || now == happened + 1);
            left_and_happened += u64::from(ended.is_none() && now > happened);
            in_vain += u64::from(now == happened);
            happened = now;
            let row = |paid, got| Some([1_000_000 - paid * happened + got * happened, happened]);
            assert_eq!(rows, [row(2, 0), row(0, 1), row(0, 1)]);
            assert_eq!(reader.count(&log), Ok(happened));
            ended.is_some()
        });
    }
    println!("{happened} happened, {left_and_happened} of them with nobody waiting, {in_vain} not");
    assert!(happened >= 20 && in_vain >= 20);
}

/// Pays two others, and writes it down.
async fn transfer(
    session: &mut AsyncSession,
    accounts: &Table<Pair>,
    log: &Table<Pair>,
    keys: &[SurrogateId],
) -> Result<DirectId, Error> {
    let body = async |transaction: &mut AsyncTransaction<'_>| {
        let rows = transaction.select_batch(accounts, keys).await?;
        for (n, (&key, row)) in keys.iter().zip(rows).enumerate() {
            let [balance, changes] = row.unwrap();
            let balance = if n == 0 { balance - 2 } else { balance + 1 };
            transaction
                .update(accounts, key, &[balance, changes + 1])
                .await?;
        }
        let gone = transaction.insert(log, &[0, 0]).await?;
        transaction.delete(log, gone).await?;
        transaction.insert(log, &[1, 1]).await
    };
    session.transaction_with(serializable(), body).await
}

#[test]
fn places_reserved_by_dropped_transactions_are_given_back() {
    /// A slab of such rows is full soon.
    const CELLS: usize = 1_000;
    let _watchdog = watchdog(120);
    let engine = engine(2);
    let table: Table<[u64; CELLS]> = engine.create_table("w", Schema::cells(CELLS)).unwrap();
    let mut reader = engine.session().unwrap();
    let mut used = Vec::new();
    let mut attempts = 0;
    for round in 0..150 {
        let mut session = engine.async_session().unwrap();
        for_each_poll(|polls| {
            attempts += 1;
            let body = async |transaction: &mut AsyncTransaction<'_>| {
                let mut kept = Vec::new();
                for n in 0..12 {
                    let id = transaction.insert(&table, &[n; CELLS]).await?;
                    if n % 3 == 0 {
                        kept.push(id);
                    } else {
                        transaction.delete(&table, id).await?;
                    }
                }
                Ok::<_, Error>(kept)
            };
            let ended = block_on(partly(session.transaction(body), polls));
            if attempts % 3 == 0 {
                session = engine.async_session().unwrap();
            }
            ended.is_some()
        });
        // Commits that nobody waits for may come to their end a little later.
        settle(&mut reader, 2);
        let mut ids = Vec::new();
        let visit = |_: &mut Session, id, _| {
            ids.push(id);
            ControlFlow::Continue(())
        };
        reader.scan(&table, visit).unwrap();
        assert_eq!(ids.len() % 4, 0, "all of a transaction's rows, or none");
        reader.delete_batch(&table, &ids).unwrap();
        if round % 50 == 49 {
            used.push(engine.used_bytes().unwrap().iter().sum::<u64>());
        }
    }
    println!("{attempts} attempts, {used:?} bytes in use");
    let slab = 2 << 20;
    assert!(used[2] <= used[0] + slab, "{used:?}");
}

#[test]
fn verb_dropped_inside_a_transaction_changes_nothing_of_it() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.async_session().unwrap();
    let keys: Vec<_> = (0..8).map(SurrogateId).collect();
    block_on(session.insert_keyed_batch(&table, &keys, &[[1, 1]; 8])).unwrap();
    let mut dropped = 0;
    for polls in 0..3 {
        let rows = block_on(
            session.transaction_with(serializable(), async |transaction| {
                assert!(transaction.update(&table, keys[0], &[2, 2]).await?);
                let update = transaction.update(&table, keys[1], &[3, 3]);
                let updated = partly(update, polls).await.is_some();
                let nested = transaction.nested(async |part| {
                    part.update(&table, keys[0], &[4, 4]).await?;
                    part.update(&table, keys[2], &[4, 4]).await
                });
                let nested = partly(nested, polls).await.is_some();
                dropped += u64::from(!updated) + u64::from(!nested);
                assert!(transaction.update(&table, keys[3], &[5, 5]).await?);
                let row = |changed: bool, value| Some(if changed { [value; 2] } else { [1, 1] });
                let first = Some(if nested { [4, 4] } else { [2, 2] });
                Ok::<_, Error>(vec![first, row(updated, 3), row(nested, 4), row(true, 5)])
            }),
        )
        .unwrap();
        assert_eq!(block_on(session.select_batch(&table, &keys[..4])), Ok(rows));
        block_on(session.update_batch(&table, &keys, &[[1, 1]; 8])).unwrap();
    }
    assert!(dropped >= 2, "those that are not polled at all");
}

#[test]
fn rows_that_many_want_and_many_leave_count_every_commit_once() {
    let _watchdog = watchdog(120);
    const SESSIONS: u64 = 12;
    const ROUNDS: u64 = 60;
    let mut random = Random::seeded();
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut reader = engine.session().unwrap();
    let keys: Vec<_> = (0..2)
        .map(|shard| keys_of(&engine, &table, shard).next().unwrap())
        .collect();
    reader
        .insert_keyed_batch(&table, &keys, &[[0, 0]; 2])
        .unwrap();
    let (ended, began) = (AtomicU64::new(0), AtomicU64::new(0));
    let futures = (0..SESSIONS).map(|who| {
        let mut session = engine.async_session().unwrap();
        let mut random = random.fork(who);
        let (table, keys, ended, began) = (&table, &keys, &ended, &began);
        let work = async move {
            for _ in 0..ROUNDS {
                let body = async |transaction: &mut AsyncTransaction<'_>| {
                    for &key in keys {
                        let [sum, n] = transaction.select(table, key).await?.unwrap();
                        transaction.update(table, key, &[sum + 1, n]).await?;
                    }
                    Ok::<_, Error>(())
                };
                let polls = random.below(60) as usize;
                let options = serializable().tries(1_000);
                let transaction = session.transaction_with(options, body);
                began.fetch_add(1, Ordering::SeqCst);
                if let Some(result) = partly(transaction, polls).await {
                    assert_eq!(result, Ok(()));
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        Box::pin(work) as std::pin::Pin<Box<dyn Future<Output = ()>>>
    });
    run_all(futures.collect());
    let _ = random.next();
    // A lease that nobody lets go of ends by itself; what waits for it comes after.
    settle(&mut reader, 2);
    let rows = reader.select_batch(&table, &keys).unwrap();
    let (ended, began) = (ended.into_inner(), began.into_inner());
    println!("{began} began, {ended} were waited for, {rows:?}");
    let [sum, _] = rows[0].unwrap();
    assert_eq!(rows, [Some([sum, 0]); 2], "both rows or none");
    assert!(ended > 0 && ended <= sum && sum <= began);
}
