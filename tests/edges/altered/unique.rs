//! Unique indexes that are added to tables in use, and dropped.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ancile::{Engine, Error, Records, Session, TableError, TransactionOptions, Value, Verbs};

use crate::edges::database::{Place, settings};
use crate::edges::support::{Random, watchdog};

ancile::record! {
    /// Somebody whose number may change.
    struct Plain {
        name: u64,
        number: Option<String>,
        padding: String,
    }
    key(name);
}

ancile::record! {
    /// No two have the same number.
    struct Numbered {
        name: u64,
        number: Option<String>,
        padding: String,
    }
    key(name);
    unique_index number(number);
}

const NAMES: u64 = 10_000;

fn plain(name: u64, number: u64) -> Plain {
    Plain {
        name,
        // Some have none; some are short and some long.
        number: (!number.is_multiple_of(7))
            .then(|| format!("{number} {}", "0".repeat((number % 5 * 10) as usize))),
        padding: "somewhat ".repeat((number % 9) as usize),
    }
}

fn template() -> Numbered {
    Numbered {
        name: 0,
        number: None,
        padding: String::new(),
    }
}

fn filled(engine: &Engine) -> Records<Plain> {
    let records = engine.create_records::<Plain>("people").unwrap();
    let all: Vec<Plain> = (0..NAMES).map(|name| plain(name, name)).collect();
    let mut session = engine.session().unwrap();
    session.records(&records).insert_batch(&all).unwrap();
    records
}

/// Changes people of its own until the table's handle is no good any more: their numbers are new ones, or
/// those that other people of its own had the moment before.
fn change(
    session: &mut Session,
    records: &Records<Plain>,
    (worker, workers): (u64, u64),
    next: &AtomicU64,
    random: &mut Random,
) -> Result<(), Error> {
    let own = |random: &mut Random| random.below(NAMES / workers) * workers + worker;
    loop {
        let (one, other) = (own(random), own(random));
        let new = next.fetch_add(1, Ordering::Relaxed);
        let mut people = session.records(records);
        match random.below(5) {
            0 => drop(people.delete(one)?),
            1 => drop(people.upsert(&plain(one, new))?),
            2 => drop(people.update(one, |person| person.number = plain(one, new).number)?),
            3 => drop(people.replace_batch(&[plain(one, new), plain(other, new + 1_000_000_000)])?),
            _ => session.transaction_with(TransactionOptions::default(), |transaction| {
                let mut people = transaction.records(records);
                let (Some(mut first), Some(mut second)) = (people.get(one)?, people.get(other)?)
                else {
                    return Ok(());
                };
                std::mem::swap(&mut first.number, &mut second.number);
                if one != other {
                    people.replace(&first)?;
                    people.replace(&second)?;
                }
                Ok::<_, Error>(())
            })?,
        }
    }
}

/// Whether each person with a number is found by it, and no other is.
fn assert_indexed(session: &mut Session, records: &Records<Numbered>) -> usize {
    let mut all = Vec::new();
    let mut people = session.records(records);
    let scanned = people.scan(|person| {
        all.push(person);
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    for person in &all {
        if let Some(number) = &person.number {
            let found = people.find("number", number).unwrap();
            assert_eq!(found.as_slice(), std::slice::from_ref(person));
        }
    }
    all.len()
}

#[test]
fn unique_index_that_is_made_while_others_write_has_exactly_their_records() {
    let _watchdog = watchdog(300);
    let random = &Random::seeded();
    let place = Place::new("unique-added");
    let engine = settings().open(place.path()).unwrap();
    let records = filled(&engine);
    let (next, is_over) = (AtomicU64::new(NAMES), AtomicBool::new(false));
    let altered = std::thread::scope(|scope| {
        for worker in 0..2 {
            let (engine, records, next, is_over) = (&engine, &records, &next, &is_over);
            let mut random = random.fork(worker);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                let ended = change(&mut session, records, (worker, 2), next, &mut random);
                assert_eq!(ended, Err(Error::TableGone));
                is_over.store(true, Ordering::Relaxed);
            });
        }
        let mut last = None;
        let altered = engine.alter_records("people", &template(), |progress| last = Some(progress));
        let last = last.unwrap();
        assert_eq!(last.done, last.total);
        altered.unwrap()
    });
    assert!(is_over.load(Ordering::Relaxed));
    println!("{} changes meanwhile", next.load(Ordering::Relaxed) - NAMES);
    let mut session = engine.session().unwrap();
    let people = assert_indexed(&mut session, &altered);
    assert!(people as u64 > NAMES / 2, "{people}");
    // It is kept from now on.
    let mut people = session.records(&altered);
    let number = Some("taken".to_owned());
    let with = |name| Numbered {
        name,
        number: number.clone(),
        padding: String::new(),
    };
    people.upsert(&with(1)).unwrap();
    let refused = people.upsert(&with(2));
    assert!(
        matches!(refused, Err(Error::DuplicateValue { .. })),
        "{refused:?}"
    );
    drop(session);
    engine.close().unwrap();
    assert!(ancile::check(place.path()).unwrap().is_whole());
    let engine = settings().open(place.path()).unwrap();
    let records = engine.open_records::<Numbered>("people").unwrap();
    assert_indexed(&mut engine.session().unwrap(), &records);
}

#[test]
fn values_that_are_there_twice_are_refused_and_nothing_has_changed() {
    let place = Place::new("unique-refused");
    let engine = settings().open(place.path()).unwrap();
    let records = filled(&engine);
    let mut session = engine.session().unwrap();
    let twice = plain(5, 1_002);
    session.records(&records).upsert(&twice).unwrap();
    let refused = engine
        .alter_records("people", &template(), |_| {})
        .unwrap_err();
    let TableError::NotUnique {
        index,
        values,
        keys,
    } = &refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (index.as_str(), values.contains("1002 ")),
        ("number", true),
        "{values}"
    );
    let mut keys = keys.clone();
    keys.sort_unstable();
    assert_eq!(keys, ["U64(1002)", "U64(5)"]);
    println!("{refused}");
    // The old handle is as good as before, and nothing watches.
    let mut people = session.records(&records);
    assert_eq!(people.get(5_u64).unwrap(), Some(twice));
    assert!(people.delete(5_u64).unwrap());
    engine.open_records::<Plain>("people").unwrap();
    assert!(engine.open_records::<Numbered>("people").is_err());
    // Without the one it can be made.
    let altered = engine.alter_records("people", &template(), |_| {}).unwrap();
    assert_eq!(assert_indexed(&mut session, &altered) as u64, NAMES - 1);
}

#[test]
fn unique_index_that_is_dropped_binds_nobody_and_can_be_made_again() {
    let place = Place::new("unique-dropped");
    let engine = settings().open(place.path()).unwrap();
    filled(&engine);
    let numbered = engine.alter_records("people", &template(), |_| {}).unwrap();
    let before = plain(0, 0);
    let dropped = engine.alter_records("people", &before, |_| {}).unwrap();
    let mut session = engine.session().unwrap();
    assert_eq!(session.records(&numbered).get(3_u64), Err(Error::TableGone));
    let mut people = session.records(&dropped);
    people.upsert(&plain(3, 1_002)).unwrap();
    people.upsert(&plain(3, NAMES * 7 + 1)).unwrap();
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(place.path()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let engine = settings().open(place.path()).unwrap();
    assert!(engine.open_records::<Numbered>("people").is_err());
    let again = engine.alter_records("people", &template(), |_| {}).unwrap();
    assert_eq!(
        assert_indexed(&mut engine.session().unwrap(), &again) as u64,
        NAMES
    );
}

/// Sets the numbers of two people at once, again and again, by whatever handle is good.
fn change_pairs(engine: &Engine, is_over: &AtomicBool, worker: u64) -> u64 {
    let mut session = engine.session().unwrap();
    let (mut done, mut gone) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let Ok(records) = engine.open_records_with("people") else {
            continue;
        };
        for round in 0_u64.. {
            let (one, other) = (2 * (round % 50), 2 * (round % 50) + 1);
            let padding = Value::Text(format!("{worker} {round} {done}"));
            let result = session.transaction(|transaction| {
                let mut people = transaction.records(&records);
                for name in [one, other] {
                    let changed = people.update(name, |person| person[2] = padding.clone())?;
                    assert!(changed);
                }
                Ok::<_, Error>(())
            });
            match result {
                Ok(()) => done += 1,
                Err(Error::TableGone) => {
                    gone += 1;
                    break;
                }
                Err(Error::Conflict { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    assert!(done > 0 && gone > 0, "{done} done, {gone} handles gone");
    done
}

#[test]
fn transactions_stay_whole_while_indexes_come_and_go() {
    let _watchdog = watchdog(300);
    let engine = settings().shards(3).build().unwrap();
    let records = engine.create_records::<Plain>("people").unwrap();
    let plainly = |name| Plain {
        padding: String::new(),
        ..plain(name, name)
    };
    let equal: Vec<Plain> = (0..100).map(plainly).collect();
    let mut session = engine.session().unwrap();
    session.records(&records).insert_batch(&equal).unwrap();
    drop(session);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                scope.spawn({
                    let (engine, is_over) = (&engine, &is_over);
                    move || change_pairs(engine, is_over, worker)
                })
            })
            .collect();
        for _ in 0..100 {
            engine.alter_records("people", &template(), |_| {}).unwrap();
            engine
                .alter_records("people", &plain(0, 0), |_| {})
                .unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let done: u64 = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        println!("{done} transactions");
    });
    let records = engine.open_records::<Plain>("people").unwrap();
    let mut session = engine.session().unwrap();
    let mut people = session.records(&records);
    for pair in 0..50_u64 {
        let one = people.get(2 * pair).unwrap().unwrap();
        let other = people.get(2 * pair + 1).unwrap().unwrap();
        assert_eq!(one.padding, other.padding, "pair {pair}");
    }
}
