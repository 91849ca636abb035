//! Transactions over several shards, on real threads.

use std::sync::atomic::{AtomicBool, Ordering};

use ancile::{
    Compared, Error, Isolation, Schema, SurrogateId, Table, TransactionOptions, TransactionOutcome,
    Transactions, Verbs,
};

use super::support::{engine, watchdog};

const ACCOUNTS: u64 = 64;
const START: u64 = 1_000;

fn serializable() -> TransactionOptions {
    TransactionOptions::new(Isolation::Serializable)
}

fn accounts(engine: &ancile::Engine) -> Table<[u64; 2]> {
    let table = engine
        .create_table::<[u64; 2]>("accounts", Schema::cells(2).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    for key in 0..ACCOUNTS {
        session
            .insert_keyed(&table, SurrogateId(key), &[START, 0])
            .unwrap();
    }
    table
}

#[test]
fn money_moved_between_shards_by_many_sessions_stays_constant() {
    let _watchdog = watchdog(300);
    for shards in [1, 2, 4] {
        let engine = engine(shards);
        let table = accounts(&engine);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let movers: Vec<_> = (0..4_u64)
                .map(|who| {
                    let (engine, table, stop) = (&engine, &table, &stop);
                    scope.spawn(move || {
                        let mut session = engine.session().unwrap();
                        let mut random = who + 1;
                        let mut moved = 0;
                        while !stop.load(Ordering::Relaxed) {
                            random = random
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1);
                            let from = SurrogateId((random >> 33) % ACCOUNTS);
                            let to = SurrogateId((random >> 45) % ACCOUNTS);
                            if from == to {
                                continue;
                            }
                            session
                                .transaction_with(serializable(), |transaction| {
                                    let [a, n] = transaction.select(table, from)?.unwrap();
                                    let [b, m] = transaction.select(table, to)?.unwrap();
                                    transaction.update(table, from, &[a - 1, n + 1])?;
                                    transaction.update(table, to, &[b + 1, m + 1])?;
                                    Ok::<_, Error>(())
                                })
                                .unwrap();
                            moved += 1;
                        }
                        moved
                    })
                })
                .collect();
            let mut session = engine.session().unwrap();
            let keys: Vec<_> = (0..ACCOUNTS).map(SurrogateId).collect();
            for _ in 0..40 {
                let rows = session
                    .transaction_with(serializable().read_only(), |transaction| {
                        transaction.select_batch(&table, &keys)
                    })
                    .unwrap();
                let total: u64 = rows.iter().flatten().map(|row| row[0]).sum();
                assert_eq!(total, START * ACCOUNTS);
            }
            stop.store(true, Ordering::Relaxed);
            let moved: u64 = movers.into_iter().map(|mover| mover.join().unwrap()).sum();
            let rows = session.select_batch(&table, &keys).unwrap();
            let noted: u64 = rows.iter().flatten().map(|row| row[1]).sum();
            assert_eq!(noted, 2 * moved, "every transfer has happened once");
        });
        engine.close().unwrap();
    }
}

#[test]
fn transaction_that_fails_changes_nothing_anywhere() {
    let engine = engine(3);
    let table = accounts(&engine);
    let plain = engine
        .create_table::<[u64; 1]>("plain", Schema::cells(1))
        .unwrap();
    let mut session = engine.session().unwrap();
    let mut leaked = None;
    let failed: Result<(), Error> = session.transaction(|transaction| {
        for key in 0..ACCOUNTS {
            transaction.update(&table, SurrogateId(key), &[0, 0])?;
        }
        transaction.delete(&table, SurrogateId(3))?;
        transaction.insert_keyed(&table, SurrogateId(1_000), &[1, 1])?;
        leaked = Some(transaction.insert(&plain, &[5])?);
        assert_eq!(transaction.select(&table, SurrogateId(3))?, None);
        assert_eq!(
            transaction.select(&table, SurrogateId(1_000))?,
            Some([1, 1])
        );
        Err(Error::NotKeyed)
    });
    assert_eq!(failed, Err(Error::NotKeyed));
    for key in 0..ACCOUNTS {
        assert_eq!(
            session.select(&table, SurrogateId(key)).unwrap(),
            Some([START, 0])
        );
    }
    assert_eq!(session.count(&table).unwrap(), ACCOUNTS);
    assert_eq!(session.count(&plain).unwrap(), 0);
    let stale = leaked.unwrap();
    for _ in 0..6 {
        session.insert(&plain, &[6]).unwrap();
    }
    assert_eq!(
        session.select(&plain, stale).unwrap(),
        None,
        "its id finds no later row"
    );
}

#[test]
fn transaction_sees_its_own_changes_and_takes_back_to_savepoints() {
    let engine = engine(2);
    let table = accounts(&engine);
    let plain = engine
        .create_table::<[u64; 1]>("plain", Schema::cells(1))
        .unwrap();
    let mut session = engine.session().unwrap();
    let mut transaction = session.begin(serializable()).unwrap();
    let (one, two) = (SurrogateId(1), SurrogateId(2));
    assert!(transaction.update_columns(&table, one, &[(1, 7)]).unwrap());
    let savepoint = transaction.savepoint();
    assert!(transaction.delete(&table, one).unwrap());
    assert!(!transaction.update(&table, one, &[1, 1]).unwrap());
    transaction.insert_keyed(&table, one, &[9, 9]).unwrap();
    assert_eq!(transaction.select(&table, one).unwrap(), Some([9, 9]));
    transaction.roll_back_to(savepoint);
    assert_eq!(transaction.select(&table, one).unwrap(), Some([START, 7]));
    let failed: Result<(), ()> = transaction.nested(|part| {
        part.delete(&table, two).unwrap();
        Err(())
    });
    assert_eq!(failed, Err(()));
    assert_eq!(
        transaction
            .update_if(&table, two, &[(1, 0)], &[(1, 8)])
            .unwrap(),
        Compared::Updated
    );
    assert_eq!(
        transaction
            .update_if(&table, two, &[(1, 0)], &[(1, 9)])
            .unwrap(),
        Compared::Differs
    );
    let kept = transaction.insert(&plain, &[4]).unwrap();
    let gone = transaction.insert(&plain, &[5]).unwrap();
    assert!(transaction.delete(&plain, gone).unwrap());
    assert_eq!(
        transaction.insert_keyed(&table, two, &[0, 0]),
        Err(Error::Duplicate { key: 2 })
    );
    transaction.commit().unwrap();
    assert_eq!(session.select(&table, one).unwrap(), Some([START, 7]));
    assert_eq!(session.select(&table, two).unwrap(), Some([START, 8]));
    assert_eq!(session.select(&plain, kept).unwrap(), Some([4]));
    assert_eq!(session.select(&plain, gone).unwrap(), None);
    assert_eq!(session.count(&plain).unwrap(), 1);
}

#[test]
fn declared_transactions_of_many_clients_each_happen_once_or_not_at_all() {
    let _watchdog = watchdog(120);
    let engine = engine(3);
    let table = accounts(&engine);
    let committed: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3_u64)
            .map(|who| {
                let (engine, table) = (&engine, &table);
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    let inside = table.clone();
                    let resident = engine
                        .spawn(who as usize, move |resident| {
                            count_up(resident, &inside, who + 100)
                        })
                        .unwrap();
                    count_up(&mut session, table, who) + resident.join().unwrap()
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    let mut session = engine.session().unwrap();
    let keys: Vec<_> = (0..ACCOUNTS).map(SurrogateId).collect();
    let rows = session.select_batch(&table, &keys).unwrap();
    let counted: u64 = rows.iter().flatten().map(|row| row[1]).sum();
    assert_eq!(counted, 2 * committed as u64);
    assert!(committed > 0);
}

/// Declares transactions that each add one to two counters, if these have not changed meanwhile; how
/// many committed.
fn count_up(client: &mut impl Verbs, table: &Table<[u64; 2]>, seed: u64) -> usize {
    let keys: Vec<_> = (0..ACCOUNTS).map(SurrogateId).collect();
    let mut random = seed;
    let mut draw = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 40) % ACCOUNTS
    };
    let mut transactions = Transactions::new();
    let mut committed = 0;
    for _ in 0..60 {
        let rows = client.select_batch(table, &keys).unwrap();
        transactions.clear();
        for _ in 0..40 {
            let (one, other) = (draw(), draw());
            if one == other {
                continue;
            }
            transactions.begin();
            for key in [one, other] {
                let count = rows[key as usize].unwrap()[1];
                let (expected, values) = ([(1, count)], [(1, count + 1)]);
                transactions
                    .update_if(table, SurrogateId(key), &expected, &values)
                    .unwrap();
            }
        }
        committed += client.run_transactions(&mut transactions).unwrap();
        let decided = |outcome: &TransactionOutcome| {
            matches!(
                outcome,
                TransactionOutcome::Committed | TransactionOutcome::Differs { .. }
            )
        };
        assert!(transactions.outcomes().iter().all(decided));
    }
    committed
}

#[test]
fn declared_transaction_that_is_refused_leaves_no_trace() {
    let engine = engine(2);
    let table = accounts(&engine);
    let plain = engine
        .create_table::<[u64; 1]>("plain", Schema::cells(1))
        .unwrap();
    let mut session = engine.session().unwrap();
    let mut transactions = Transactions::new();
    let refusals = [
        TransactionOutcome::NotFound { operation: 4 },
        TransactionOutcome::Duplicate { operation: 4 },
        TransactionOutcome::Differs { operation: 4 },
        TransactionOutcome::Committed,
    ];
    for (at, _) in refusals.iter().enumerate() {
        let key = |n: u64| SurrogateId(at as u64 * 8 + n);
        transactions.begin();
        transactions.insert(&plain, &[at as u64]).unwrap();
        transactions
            .insert_keyed(&table, SurrogateId(1_000 + at as u64), &[1, 1])
            .unwrap();
        transactions.delete(&table, key(0)).unwrap();
        transactions
            .upsert(&table, SurrogateId(2_000 + at as u64), &[2, 2])
            .unwrap();
        match at {
            0 => transactions.delete(&table, SurrogateId(99_999)).unwrap(),
            1 => transactions.insert_keyed(&table, key(1), &[0, 0]).unwrap(),
            2 => transactions
                .update_if(&table, key(1), &[(0, 1)], &[(0, 2)])
                .unwrap(),
            _ => transactions
                .update_columns(&table, key(1), &[(1, 5)])
                .unwrap(),
        }
    }
    assert_eq!(session.run_transactions(&mut transactions).unwrap(), 1);
    assert_eq!(transactions.outcomes(), refusals);
    assert_eq!(session.count(&plain).unwrap(), 1);
    assert_eq!(session.count(&table).unwrap(), ACCOUNTS + 1);
    for at in 0..4_u64 {
        let is_done = at == 3;
        let is_there = |row: Option<[u64; 2]>| row.is_some();
        let inserted = session.select(&table, SurrogateId(1_000 + at)).unwrap();
        assert_eq!(is_there(inserted), is_done);
        let upserted = session.select(&table, SurrogateId(2_000 + at)).unwrap();
        assert_eq!(is_there(upserted), is_done);
        let deleted = session.select(&table, SurrogateId(at * 8)).unwrap();
        assert_eq!(is_there(deleted), !is_done);
    }
}

#[test]
fn handle_of_another_table_finds_nothing_in_a_transaction_that_has_touched_its_namesake() {
    let _watchdog = watchdog(60);
    let (one, other) = (engine(2), engine(2));
    let table = accounts(&one);
    let wider = Schema::cells(3).keyed();
    let foreign = other
        .create_table::<[u64; 3]>("wider", wider.clone())
        .unwrap();
    let mut session = one.session().unwrap();
    let key = SurrogateId(1);
    let mut transaction = session.begin(serializable()).unwrap();
    transaction.update(&table, key, &[7, 7]).unwrap();
    assert_eq!(
        transaction.update(&foreign, key, &[6; 3]),
        Err(Error::TableGone)
    );
    assert_eq!(transaction.select(&foreign, key), Err(Error::TableGone));
    assert_eq!(transaction.select(&table, key).unwrap(), Some([7, 7]));
    one.drop_table("accounts").unwrap();
    let new = one.create_table::<[u64; 3]>("new", wider).unwrap();
    assert_eq!(transaction.select(&new, key).unwrap(), None);
    assert_eq!(transaction.commit(), Err(Error::TableGone));
}

#[test]
fn declared_transaction_has_one_operation_a_row_and_none_that_cannot_be_added() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = accounts(&engine);
    let mut session = engine.session().unwrap();
    let mut transactions = Transactions::new();
    let key = |n| SurrogateId(n);
    // Short and long transactions look for the row in different ways.
    for others in [0, 20] {
        for n in 10..10 + others {
            transactions.upsert(&table, key(n), &[n, n]).unwrap();
        }
        transactions.delete(&table, key(1)).unwrap();
        assert_eq!(
            transactions.upsert(&table, key(1), &[9, 9]),
            Err(Error::RowTwice)
        );
        transactions.begin();
    }
    transactions.update(&table, key(2), &[5, 5]).unwrap();
    let refused = transactions.update_columns(&table, key(3), &[(2, 0)]);
    assert!(matches!(refused, Err(Error::Column { .. })));
    transactions.begin();
    transactions.update(&table, key(4), &[6, 6]).unwrap();
    assert_eq!(session.run_transactions(&mut transactions).unwrap(), 1);
    let is_refused =
        |outcome: &TransactionOutcome| matches!(outcome, TransactionOutcome::Failed(_));
    assert!(transactions.outcomes()[..3].iter().all(is_refused));
    assert_eq!(transactions.delete(&table, key(5)), Err(Error::AlreadyRun));
    assert_eq!(session.run_transactions(&mut transactions).unwrap(), 1);
    assert_eq!(session.count(&table).unwrap(), ACCOUNTS);
    for n in [1, 2, 3, 5] {
        assert_eq!(session.select(&table, key(n)).unwrap(), Some([START, 0]));
    }
    assert_eq!(session.select(&table, key(4)).unwrap(), Some([6, 6]));
}

#[test]
fn row_named_by_key_and_by_place_in_one_declared_transaction_leaves_the_table_whole() {
    let _watchdog = watchdog(60);
    for shards in [1, 2] {
        let engine = engine(shards);
        let table = accounts(&engine);
        let mut session = engine.session().unwrap();
        let id = session
            .insert_keyed(&table, SurrogateId(500), &[1, 1])
            .unwrap();
        let mut transactions = Transactions::new();
        transactions.delete(&table, id).unwrap();
        transactions
            .upsert(&table, SurrogateId(500), &[2, 2])
            .unwrap();
        transactions
            .update(&table, SurrogateId(1), &[3, 3])
            .unwrap();
        session.run_transactions(&mut transactions).unwrap();
        let mut scanned = 0;
        session
            .scan(&table, |_, _, _| {
                scanned += 1;
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(session.count(&table).unwrap(), scanned);
        let is_there = session.select(&table, SurrogateId(500)).unwrap().is_some();
        assert_eq!(scanned, ACCOUNTS + u64::from(is_there));
    }
}

#[test]
fn panic_of_a_transaction_goes_on_though_the_engine_is_closed_meanwhile() {
    let _watchdog = watchdog(60);
    let engine = engine(2);
    let table = accounts(&engine);
    let mut session = engine.session().unwrap();
    let mut engine = Some(engine);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        session.transaction_with(serializable(), |transaction| -> Result<(), Error> {
            transaction.select_batch(&table, &[SurrogateId(1), SurrogateId(2)])?;
            drop(engine.take());
            panic!("of the body")
        })
    }));
    let payload = panicked.unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"of the body"));
}
