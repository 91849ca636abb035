//! Databases in files: what transactions keep there while they are under way, and that it goes.

use ancile::{Engine, Error, Schema, SurrogateId, TransactionOptions, Transactions, Verbs};

use super::database::{Place, settings};
use super::support::{Pair, watchdog};

fn used(engine: &Engine) -> u64 {
    engine.used_bytes().unwrap().iter().sum()
}

#[test]
fn large_transaction_that_is_refused_at_its_end_leaves_nothing_and_its_shards_live() {
    const ROWS: u64 = 60_000;
    let _watchdog = watchdog(300);
    let place = Place::new("refused");
    let engine = settings().open(place.path()).unwrap();
    let schema = Schema::cells(2).keyed();
    let table = engine.create_table::<Pair>("t", schema).unwrap();
    let plain = engine.create_table::<Pair>("p", Schema::cells(2)).unwrap();
    let mut session = engine.session().unwrap();
    for last in [SurrogateId(ROWS), SurrogateId(ROWS + 1)] {
        session.insert_keyed(&table, last, &[1, 1]).unwrap();
        let mut transactions = Transactions::new();
        for key in 0..ROWS {
            let key = SurrogateId(key);
            transactions.insert_keyed(&table, key, &[2, 2]).unwrap();
        }
        transactions.insert_keyed(&table, last, &[2, 2]).unwrap();
        assert_eq!(session.run_transactions(&mut transactions), Ok(0));
        session.delete(&table, last).unwrap();
        assert_eq!(session.count(&table), Ok(0));
    }
    // Places are reserved one by one, and all rows are written when the transaction is decided.
    let mut inserted = 0;
    for is_refused in [true, false] {
        let result = session.transaction(|transaction| {
            for row in 0..ROWS {
                transaction.insert(&plain, &[row, row])?;
            }
            if is_refused {
                return Err(Error::NotKeyed);
            }
            Ok(())
        });
        assert_eq!(result.is_err(), is_refused);
        inserted += if is_refused { 0 } else { ROWS };
        assert_eq!(session.count(&plain), Ok(inserted));
    }
    drop(session);
    engine.close().unwrap();
    let engine = settings().open(place.path()).unwrap();
    let plain = engine.open_table::<Pair>("p").unwrap();
    assert_eq!(engine.session().unwrap().count(&plain), Ok(inserted));
}

#[test]
fn lists_of_reserved_places_go_when_their_last_place_is_used() {
    const ROUNDS: u64 = 40;
    let _watchdog = watchdog(300);
    let place = Place::new("lists");
    let engine = settings().open(place.path()).unwrap();
    let plain = engine.create_table::<Pair>("p", Schema::cells(2)).unwrap();
    let (mut one, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let mut after = Vec::new();
    for round in 0..ROUNDS {
        // A place of a list is reserved until two others are full.
        let mut waits = one.begin(TransactionOptions::default()).unwrap();
        waits.insert(&plain, &[round, 0]).unwrap();
        for _ in 0..1_200 {
            let id = other.transaction(|transaction| transaction.insert(&plain, &[1, 1]));
            assert!(other.delete(&plain, id.unwrap()).unwrap());
        }
        waits.commit().unwrap();
        after.push(used(&engine));
    }
    assert!(
        after[ROUNDS as usize - 1] - after[9] < 60 << 10,
        "{after:?}"
    );
    assert_eq!(other.count(&plain), Ok(ROUNDS));
}

#[test]
fn resident_work_of_a_read_only_database_changes_nothing() {
    let place = Place::new("resident-read-only");
    let engine = settings().open(place.path()).unwrap();
    let schema = Schema::cells(2).keyed();
    engine.create_table::<Pair>("t", schema).unwrap();
    engine.close().unwrap();
    let engine = settings().read_only(true).open(place.path()).unwrap();
    let table = engine.open_table::<Pair>("t").unwrap();
    for shard in 0..2 {
        let table = table.clone();
        let task = engine.spawn(shard, move |resident| {
            let refused = Err(Error::DatabaseReadOnly);
            for key in (0..20).map(SurrogateId) {
                assert_eq!(
                    resident.insert_keyed(&table, key, &[1, 1]).map(drop),
                    refused
                );
                assert_eq!(resident.upsert(&table, key, &[1, 1]).map(drop), refused);
            }
            resident.count(&table)
        });
        assert_eq!(task.unwrap().join(), Ok(Ok(0)));
    }
}
