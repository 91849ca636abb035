//! Statistics: each number counts what it says.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ancile::{
    Batch, DirectId, Engine, Error, HotId, Isolation, ShardStats, Stats, SurrogateId, Table,
    TransactionOptions, Transactions, Verbs,
};

use super::executor::Stepper;
use super::support::{Pair, builder, engine, hold, keyed, keys_of, unkeyed, watchdog};

fn serializable() -> TransactionOptions {
    TransactionOptions::new(Isolation::Serializable)
}

fn sum(stats: &Stats, of: impl Fn(&ShardStats) -> u64) -> u64 {
    stats.shards.iter().map(of).sum()
}

/// What happened meanwhile.
fn during(engine: &Engine, work: impl FnOnce()) -> Stats {
    let before = engine.stats().unwrap();
    work();
    engine.stats().unwrap().since(&before)
}

/// A table, with a row in each of the first two shards.
fn two_rows(engine: &Engine) -> (Table<Pair>, [SurrogateId; 2]) {
    let table = keyed(engine, "k");
    let keys = [0, 1].map(|shard| keys_of(engine, &table, shard).next().unwrap());
    let mut session = engine.session().unwrap();
    session
        .insert_keyed_batch(&table, &keys, &[[0, 0]; 2])
        .unwrap();
    (table, keys)
}

#[test]
fn operations_are_counted_by_verb_in_the_shard_that_executes_them() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (keyed, unkeyed) = (keyed(&engine, "k"), unkeyed(&engine, "u"));
    let mut session = engine.session().unwrap();
    let keys: Vec<_> = (0..300).map(SurrogateId).collect();
    let mut ids = Vec::new();
    let stats = during(&engine, || {
        session
            .insert_keyed_batch(&keyed, &keys, &[[1, 1]; 300])
            .unwrap();
        session
            .insert_batch(&unkeyed, &[[1, 1]; 7], &mut ids)
            .unwrap();
        session.select_batch(&keyed, &keys[..250]).unwrap();
        session.update_batch(&unkeyed, &ids, &[[2, 2]; 7]).unwrap();
        session.delete(&unkeyed, ids[0]).unwrap();
        session.delete(&unkeyed, ids[0]).unwrap();
        session.upsert(&keyed, keys[0], &[3, 3]).unwrap();
        let mut batch = Batch::<Pair, SurrogateId>::new(&keyed, 20);
        // Ten of each for one shard, so that its block is a mixture.
        for &key in keys
            .iter()
            .filter(|&&key| engine.shard_of(&keyed, key) == 1)
            .take(10)
        {
            batch.select(key).unwrap();
            batch.update(key, &[4, 4]).unwrap();
        }
        session.run(&mut batch).unwrap();
        session.update_columns(&keyed, keys[0], &[(0, 1)]).unwrap();
        session.count(&keyed).unwrap();
        session.on(1, |_| Ok::<_, Error>(())).unwrap();
    });
    assert_eq!(sum(&stats, |shard| shard.operations.selects), 250);
    assert_eq!(sum(&stats, |shard| shard.operations.inserts), 307);
    assert_eq!(sum(&stats, |shard| shard.operations.updates), 7);
    assert_eq!(sum(&stats, |shard| shard.operations.deletes), 2);
    assert_eq!(sum(&stats, |shard| shard.operations.upserts), 1);
    assert_eq!(stats.shards[1].operations.mixed, 20);
    assert_eq!(sum(&stats, |shard| shard.operations.closures), 4);
    let total = 250 + 307 + 7 + 2 + 1 + 20 + 4;
    assert_eq!(sum(&stats, |shard| shard.operations.total()), total);
    let here = keys
        .iter()
        .filter(|&&key| engine.shard_of(&keyed, key) == 0);
    let selected = here.filter(|key| key.0 < 250).count() as u64;
    assert_eq!(stats.shards[0].operations.selects, selected);
    // A resident's verbs count, where they are executed.
    let stats = during(&engine, || {
        let inside = (keyed.clone(), keys.clone());
        let work = move |resident: &mut ancile::Resident<'_>| {
            resident.select_batch(&inside.0, &inside.1).unwrap();
            let mut pipeline = resident.pipeline(&inside.0);
            pipeline.delete(inside.1[0]).unwrap();
        };
        engine.spawn(0, work).unwrap().join().unwrap();
    });
    assert_eq!(sum(&stats, |shard| shard.operations.selects), 300);
    assert_eq!(sum(&stats, |shard| shard.operations.deletes), 1);
}

#[test]
fn transactions_are_counted_by_their_ends_and_proposals_by_their_hops() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (table, keys) = two_rows(&engine);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let stats = during(&engine, || {
        for n in 0..10 {
            let both = session.transaction(|transaction| {
                transaction.update(&table, keys[0], &[n, n])?;
                transaction.update(&table, keys[1], &[n, n])
            });
            both.unwrap();
        }
    });
    assert_eq!(stats.shards[0].transactions.committed, 10);
    assert_eq!(sum(&stats, |shard| shard.transactions.committed), 10);
    assert_eq!(sum(&stats, |shard| shard.transactions.aborted()), 0);
    // Here, there, and back.
    let hops = |shard: &ShardStats| (shard.proposals_sent, shard.proposals_received);
    assert_eq!(hops(&stats.shards[0]), (10, 20));
    assert_eq!(hops(&stats.shards[1]), (10, 10));

    let stats = during(&engine, || {
        let read = session.transaction_with(serializable(), |transaction| {
            transaction.select_batch(&table, &keys)
        });
        assert_eq!(read, Ok(vec![Some([9, 9]); 2]));
    });
    assert_eq!(
        stats.shards[1].transactions.validated, 1,
        "where its way ends"
    );

    let mut tries = 0;
    let stats = during(&engine, || {
        let changed = session.transaction_with(serializable(), |transaction| {
            tries += 1;
            let [sum, n] = transaction.select(&table, keys[1])?.unwrap();
            if tries <= 3 {
                other.update(&table, keys[1], &[sum + 1, n])?;
            }
            transaction.update(&table, keys[1], &[sum, n])
        });
        changed.unwrap();
    });
    assert_eq!(stats.shards[1].transactions.changed, 3);
    assert_eq!(stats.shards[1].transactions.committed, 1);

    let stats = during(&engine, || {
        let refused = session.transaction(|transaction| {
            if transaction.update(&table, keys[0], &[0, 0])? {
                other.delete(&table, keys[0])?;
            }
            Ok::<_, Error>(())
        });
        refused.unwrap();
    });
    assert_eq!(sum(&stats, |shard| shard.transactions.refused), 1);

    let stats = during(&engine, || {
        let gone = session.transaction(|transaction| {
            transaction.upsert(&table, keys[0], &[0, 0])?;
            engine.drop_table("k").unwrap();
            Ok::<_, Error>(())
        });
        assert_eq!(gone, Err(Error::TableGone));
    });
    assert_eq!(sum(&stats, |shard| shard.transactions.failed), 1);
}

#[test]
fn neighbours_and_leases_are_counted() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (table, keys) = two_rows(&engine);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let stats = during(&engine, || {
        let mut transactions = Transactions::new();
        for n in 0..2 {
            transactions.begin();
            transactions.update(&table, keys[0], &[n, n]).unwrap();
            transactions.update(&table, keys[1], &[n, n]).unwrap();
        }
        assert_eq!(session.run_transactions(&mut transactions), Ok(2));
    });
    assert_eq!(sum(&stats, |shard| shard.transactions.neighbour), 1);
    assert_eq!(sum(&stats, |shard| shard.transactions.committed), 2);

    let mut tries = 0;
    let stats = during(&engine, || {
        let leased = session.transaction_with(serializable(), |transaction| {
            tries += 1;
            for key in keys {
                let [sum, n] = transaction.select(&table, key)?.unwrap();
                transaction.update(&table, key, &[sum, n + 1])?;
            }
            match tries {
                ..=8 => other
                    .update_columns(&table, keys[0], &[(0, tries)])
                    .map(drop),
                // Longer than a lease lasts.
                9 => {
                    std::thread::sleep(Duration::from_millis(50));
                    Ok(())
                }
                _ => Ok(()),
            }
        });
        leased.unwrap();
    });
    assert_eq!(sum(&stats, |shard| shard.transactions.changed), 8);
    let lost = sum(&stats, |shard| shard.transactions.lease);
    assert!(lost >= 1, "the first was over");
    let leases = stats.shards[1].leases;
    assert!(leases >= lost, "told where their way ends");
    assert_eq!(sum(&stats, |shard| shard.transactions.committed), 1);
    assert_eq!(sum(&stats, |shard| shard.intents), 0);
}

#[test]
fn what_waits_behind_intents_is_counted_and_its_rows_are_hot() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (table, keys) = two_rows(&engine);
    let before = engine.stats().unwrap();
    let mut stats = before.clone();
    let mut rounds = 0;
    // The request of another thread may come too late to wait.
    while sum(&stats, |shard| shard.parked_requests) == 0 {
        wait_behind_a_commit(&engine, &table, keys);
        rounds += 1;
        stats = engine.stats().unwrap().since(&before);
    }
    let shard = &stats.shards[0];
    assert_eq!(shard.transactions.timed_out, rounds);
    assert_eq!(shard.transactions.committed, rounds);
    assert_eq!((shard.parked_proposals, shard.parked_requests), (rounds, 1));
    assert_eq!(sum(&stats, |shard| shard.intents), 0);
    let hottest = &shard.hottest[0];
    assert_eq!((&*hottest.table, hottest.row), ("k", HotId::Key(keys[0])));
    assert!(hottest.seen > rounds && hottest.seen_error == 0);
}

/// Has a commit stay in shard 0, as it waits for shard 1, and a transaction and a request behind it.
fn wait_behind_a_commit(engine: &Engine, table: &Table<Pair>, keys: [SurrogateId; 2]) {
    let mut session = engine.async_session().unwrap();
    let held = RefCell::new(None);
    let body = async |transaction: &mut ancile::AsyncTransaction<'_>| {
        transaction.update(table, keys[0], &[1, 1]).await?;
        transaction.update(table, keys[1], &[1, 1]).await?;
        held.replace(Some(hold(engine, 1)));
        Ok::<_, Error>(())
    };
    let mut stepper = Stepper::new();
    let mut commit = Box::pin(session.transaction(body));
    while stepper.poll(commit.as_mut()).is_pending() && held.borrow().is_none() {
        stepper.sleep();
    }
    drop(commit);
    let (release, task) = held.into_inner().unwrap();
    let (is_asked, asked) = channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let mut session = engine.session().unwrap();
            is_asked.send(()).unwrap();
            session.update_columns(table, keys[0], &[(0, 2)]).unwrap();
        });
        asked.recv().unwrap();
        let mut session = engine.session().unwrap();
        let options = TransactionOptions::default().timeout(Duration::from_millis(200));
        let late = session.transaction_with(options, |transaction| {
            transaction.update(table, keys[0], &[3, 3])
        });
        assert_eq!(late, Err(Error::TimedOut));
        drop(release);
        waiting.join().unwrap();
    });
    task.join().unwrap();
}

#[test]
fn intents_that_stand_are_counted() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (table, keys) = two_rows(&engine);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let mut tries = 0;
    let mut standing = 0;
    let leased = session.transaction_with(serializable().tries(1_000), |transaction| {
        tries += 1;
        let [sum, n] = transaction.select(&table, keys[0])?.unwrap();
        transaction.update(&table, keys[0], &[sum, n + 1])?;
        if tries > 8 && standing == 0 {
            let stats = engine.stats()?;
            standing = stats.shards[0].intents;
            assert_eq!(stats.shards[1].intents, 0);
        }
        if standing == 0 {
            // Not under a lease yet, or it was over before it could be counted: once more.
            other.update_columns(&table, keys[0], &[(0, tries)])?;
        }
        Ok::<_, Error>(())
    });
    leased.unwrap();
    assert_eq!(standing, 1);
    assert_eq!(sum(&engine.stats().unwrap(), |shard| shard.intents), 0);
}

#[test]
fn requests_that_wait_in_rings_are_counted() {
    let _watchdog = watchdog(60);
    let engine = builder(2).block_operations(1).build().unwrap();
    let table = keyed(&engine, "k");
    let keys: Vec<_> = keys_of(&engine, &table, 1).take(10).collect();
    let (mut one, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    // The shard serves four of each client before it answers, if it was asked before.
    let mut seen = Vec::new();
    while seen.last() != Some(&(8, 6)) {
        let mut pipelines = [one.pipeline(&table), other.pipeline(&table)];
        let (release, task) = hold(&engine, 1);
        for (pipeline, count) in pipelines.iter_mut().zip([10, 6]) {
            for &key in &keys[..count] {
                pipeline.select(key).unwrap();
            }
            pipeline.flush().unwrap();
        }
        let stats = std::thread::scope(|scope| {
            let stats = scope.spawn(|| engine.stats().unwrap());
            std::thread::sleep(Duration::from_millis(20));
            drop(release);
            stats.join().unwrap()
        });
        task.join().unwrap();
        let shard = &stats.shards[1];
        assert!(shard.waiting_requests <= 16 && shard.waiting_requests_max <= 10);
        assert_eq!(stats.shards[0].waiting_requests, 0);
        seen.push((shard.waiting_requests, shard.waiting_requests_max));
    }
    let stats = engine.stats().unwrap();
    assert_eq!(sum(&stats, |shard| shard.waiting_requests), 0);
}

#[test]
fn row_that_has_half_of_the_load_is_the_hottest() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let (keyed, unkeyed) = (keyed(&engine, "k"), unkeyed(&engine, "u"));
    let mut session = engine.session().unwrap();
    let mut ids = Vec::new();
    session
        .insert_batch(&unkeyed, &[[0, 0]; 500], &mut ids)
        .unwrap();
    let hot: Vec<DirectId> = [0, 1]
        .map(|shard| *ids.iter().find(|id| id.shard() == shard).unwrap())
        .into();
    for n in 0..2_000_u64 {
        let hot_key = SurrogateId(7);
        session.select(&keyed, hot_key).unwrap();
        session
            .upsert(&keyed, SurrogateId(1_000 + n), &[0, 0])
            .unwrap();
        session.update(&unkeyed, hot[0], &[n, n]).unwrap();
        session.update(&unkeyed, hot[1], &[n, n]).unwrap();
    }
    let stats = engine.stats().unwrap();
    let owner = engine.shard_of(&keyed, SurrogateId(7));
    for (shard, stats) in stats.shards.iter().enumerate() {
        let is_hot = |row: HotId| stats.hottest.iter().take(2).any(|hot| hot.row == row);
        assert!(is_hot(HotId::Place(hot[shard])), "{:?}", stats.hottest);
        assert_eq!(is_hot(HotId::Key(SurrogateId(7))), shard == owner);
        assert!(stats.hottest.len() <= 16);
        let order = stats
            .hottest
            .is_sorted_by_key(|hot| std::cmp::Reverse(hot.seen));
        assert!(order, "{:?}", stats.hottest);
    }
    engine.drop_table("k").unwrap();
    for shard in engine.stats().unwrap().shards {
        assert!(shard.hottest.iter().all(|hot| hot.table == "u"));
    }
}

#[test]
fn idle_time_is_what_work_leaves_of_the_time() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let before = engine.stats().unwrap();
    let (release, task) = hold(&engine, 1);
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(100));
    let held = start.elapsed();
    drop(release);
    task.join().unwrap();
    let stats = engine.stats().unwrap().since(&before);
    let [free, busy] = [&stats.shards[0], &stats.shards[1]];
    assert!(
        busy.idle + held <= busy.open + Duration::from_millis(1),
        "{busy:?}"
    );
    assert!(free.idle > busy.idle && free.idle <= free.open, "{free:?}");
    assert!((0.0..=1.0).contains(&free.idle_share()));
    assert!(busy.idle_share() < free.idle_share());
}

#[test]
fn statistics_are_printed_as_a_table_and_refused_inside_a_shard() {
    let _watchdog = watchdog(60);
    let engine = std::sync::Arc::new(engine(3));
    let table = keyed(&engine, "accounts");
    let mut session = engine.session().unwrap();
    for _ in 0..200 {
        session.upsert(&table, SurrogateId(5), &[1, 1]).unwrap();
    }
    let mut rows = 0;
    let visit = |_: &mut ancile::Session, _, _: Pair| {
        rows += 1;
        ControlFlow::Continue(())
    };
    session.scan(&table, visit).unwrap();
    assert_eq!(rows, 1);
    let text = engine.stats().unwrap().to_string();
    println!("{text}");
    let lines: Vec<_> = text.lines().collect();
    for shard in 0..3 {
        assert!(lines[0].contains(&format!("shard {shard}")));
    }
    for line in [
        "operations",
        "committed",
        "parked",
        "intents",
        "waiting",
        "idle",
    ] {
        assert!(lines.iter().any(|text| text.starts_with(line)), "{line}");
    }
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    assert!(text.contains("accounts[5] x "));
    let inside = std::sync::Arc::clone(&engine);
    let task = engine.spawn(0, move |_| inside.stats().map(drop));
    assert_eq!(task.unwrap().join().unwrap(), Err(Error::InsideShard));
}
