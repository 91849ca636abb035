//! Sessions whose calls are futures: when they are woken, by whom, and how often.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use ancile::{Error, Isolation, Resident, SurrogateId, TransactionOptions};

use super::executor::{Stepper, block_on, run, run_all};
use super::support::{builder, engine, hold, keyed, keys_of, watchdog};

fn serializable() -> TransactionOptions {
    TransactionOptions::new(Isolation::Serializable)
}

#[test]
fn hundred_sessions_of_one_thread_do_their_work_and_wait_for_each_other() {
    let _watchdog = watchdog(120);
    const SESSIONS: u64 = 100;
    const ROUNDS: u64 = 10;
    let engine = builder(2)
        .lane_requests(2)
        .block_operations(4)
        .build()
        .unwrap();
    let table = keyed(&engine, "k");
    let mut first = engine.async_session().unwrap();
    for key in 0..4 {
        let added = first.insert_keyed(&table, SurrogateId(key), &[0, 0]);
        block_on(added).unwrap();
    }
    let futures = (0..SESSIONS).map(|who| {
        let mut session = engine.async_session().unwrap();
        let table = &table;
        let work = async move {
            let keys: Vec<_> = (0..20).map(|n| SurrogateId(1_000 + who * 20 + n)).collect();
            for round in 0..ROUNDS {
                let rows = [[who, round]; 20];
                let added = session.insert_keyed_batch(table, &keys, &rows).await;
                assert_eq!(added, Ok(20));
                let body = async |transaction: &mut ancile::AsyncTransaction<'_>| {
                    for key in [who % 4, (who + round) % 4].map(SurrogateId) {
                        let [sum, n] = transaction.select(table, key).await?.unwrap();
                        transaction.update(table, key, &[sum + 1, n]).await?;
                    }
                    Ok::<_, Error>(())
                };
                session
                    .transaction_with(serializable(), body)
                    .await
                    .unwrap();
                let found = session.select_batch(table, &keys).await.unwrap();
                assert_eq!(found, vec![Some([who, round]); 20]);
                assert_eq!(session.delete_batch(table, &keys).await, Ok(20));
            }
        };
        Box::pin(work) as std::pin::Pin<Box<dyn Future<Output = ()>>>
    });
    let efforts = run_all(futures.collect());
    let rows: Vec<_> = (0..4)
        .map(|key| {
            block_on(first.select(&table, SurrogateId(key)))
                .unwrap()
                .unwrap()[0]
        })
        .collect();
    assert_eq!(rows.iter().sum::<u64>(), SESSIONS * ROUNDS * 2);
    assert_eq!(block_on(first.count(&table)), Ok(4));
    // A task is polled once to begin with, and then because it was woken.
    for effort in efforts {
        assert!(effort.polls <= 1 + effort.wakes, "{effort:?}");
    }
}

#[test]
fn pending_future_is_not_woken_before_its_answer_and_not_polled_more_than_there_are_answers() {
    let _watchdog = watchdog(60);
    let engine = builder(2)
        .lane_requests(4)
        .block_operations(8)
        .build()
        .unwrap();
    let table = keyed(&engine, "k");
    let mut session = engine.async_session().unwrap();
    let keys: Vec<_> = keys_of(&engine, &table, 1).take(400).collect();
    let rows = vec![[1, 1]; 400];
    let (added, effort) = run(session.insert_keyed_batch(&table, &keys, &rows));
    assert_eq!(added, Ok(400));
    assert!(
        effort.polls <= 1 + 400 / 8,
        "{effort:?} for {} blocks",
        400 / 8
    );
    let (row, effort) = run(session.select(&table, keys[0]));
    assert_eq!(row, Ok(Some([1, 1])));
    assert!(effort.polls <= 2 && effort.wakes <= 1, "{effort:?}");

    let (release, task) = hold(&engine, 1);
    let mut stepper = Stepper::new();
    let mut select = pin!(session.select(&table, keys[0]));
    assert!(stepper.poll(select.as_mut()).is_pending());
    // Polled for no reason it waits on, and asks for one wake-up only.
    assert!(stepper.poll(select.as_mut()).is_pending());
    let mut other = engine.async_session().unwrap();
    let elsewhere = keys_of(&engine, &table, 0).next().unwrap();
    for _ in 0..100 {
        assert_eq!(block_on(other.select(&table, elsewhere)), Ok(None));
    }
    assert_eq!(stepper.effort().wakes, 0);
    release.send(()).unwrap();
    stepper.sleep();
    assert_eq!(stepper.poll(select.as_mut()), Poll::Ready(Ok(Some([1, 1]))));
    assert_eq!(stepper.effort().wakes, 1);
    task.join().unwrap();

    let mut transfer = engine.async_session().unwrap();
    let (both, effort) = run(transfer.transaction(async |transaction| {
        transaction.upsert(&table, elsewhere, &[2, 2]).await?;
        transaction.upsert(&table, keys[0], &[2, 2]).await
    }));
    assert_eq!(both, Ok(true));
    assert!(effort.polls <= 4 && effort.wakes <= 3, "{effort:?}");
}

#[test]
fn engine_that_closes_wakes_every_pending_future() {
    let _watchdog = watchdog(60);
    for transaction in [false, true] {
        let engine = builder(2)
            .lane_requests(1)
            .block_operations(4)
            .build()
            .unwrap();
        let table = keyed(&engine, "k");
        let keys: Vec<_> = (0..1_000).map(SurrogateId).collect();
        let rows = vec![[1, 1]; 1_000];
        let holds: Vec<_> = (0..2).map(|shard| hold(&engine, shard)).collect();
        let closed = AtomicU64::new(0);
        let futures = (0..20).map(|_| {
            let mut session = engine.async_session().unwrap();
            let (table, keys, rows, closed) = (&table, &keys, &rows, &closed);
            let work = async move {
                let result = if transaction {
                    let body = async |transaction: &mut ancile::AsyncTransaction<'_>| {
                        transaction.select_batch(table, keys).await.map(drop)
                    };
                    let mut result = Ok(());
                    while result.is_ok() {
                        result = session.transaction(body).await;
                    }
                    result
                } else {
                    let mut result = Ok(0);
                    while result.is_ok() {
                        result = session.update_batch(table, keys, rows).await;
                    }
                    result.map(drop)
                };
                assert_eq!(result, Err(Error::Closed));
                assert_eq!(session.select(table, keys[0]).await, Err(Error::Closed));
                let on = session.on(1, |_| Ok::<_, Error>(()));
                assert_eq!(on.await, Err(Error::Closed));
                let ended = session.transaction(async |transaction| {
                    transaction.upsert(table, keys[1], &[3, 3]).await
                });
                assert_eq!(ended.await, Err(Error::Closed));
                closed.fetch_add(1, Ordering::SeqCst);
            };
            Box::pin(work) as std::pin::Pin<Box<dyn Future<Output = ()>>>
        });
        let futures = futures.collect();
        let closer = std::thread::spawn(move || {
            drop(holds);
            engine.close().unwrap();
        });
        run_all(futures);
        closer.join().unwrap();
        assert_eq!(closed.into_inner(), 20);
    }
}

#[test]
fn use_inside_a_shard_is_refused() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = keyed(&engine, "k");
    let mut session = engine.async_session().unwrap();
    let inside = table.clone();
    let task = engine.spawn(0, move |_: &mut Resident<'_>| {
        let refused = block_on(session.select(&inside, SurrogateId(1)));
        assert_eq!(refused, Err(Error::InsideShard));
        let refused = block_on(session.on(1, |_| Ok::<_, Error>(())));
        assert_eq!(refused, Err(Error::InsideShard));
        let mut runs = 0;
        let refused = block_on(session.transaction(async |_| {
            runs += 1;
            Ok::<_, Error>(())
        }));
        assert_eq!((refused, runs), (Err(Error::InsideShard), 0));
        session
    });
    let mut session = task.unwrap().join().unwrap();
    assert_eq!(block_on(session.select(&table, SurrogateId(1))), Ok(None));
}
