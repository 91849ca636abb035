//! Space: what is deleted serves again, whatever its size, and goes back to the system when asked.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ancile::{Engine, Records, Schema, Session, SurrogateId, Verbs};

use super::database::{Place, settings};
use super::support::Random;

ancile::record! {
    /// A text with a name and a number.
    pub struct Letter {
        pub name: u64,
        pub group: u64,
        pub text: String,
    }
    key(name);
    hash_index group(group);
}

type Model = BTreeMap<u64, Letter>;

fn letter(name: u64, length: usize) -> Letter {
    let letters = "a letter of some length, ".chars().cycle();
    Letter {
        name,
        group: name % 1_000,
        text: letters.skip(name as usize % 25).take(length).collect(),
    }
}

/// Bytes that the records are, without any memory that is there for order.
fn live_bytes(model: &Model) -> u64 {
    let bytes = model.values().map(|letter| 8 + 16 + 16 + letter.text.len());
    bytes.sum::<usize>() as u64
}

fn used(engine: &Engine) -> u64 {
    engine.used_bytes().unwrap().iter().sum()
}

fn file_bytes(engine: &Engine) -> u64 {
    let space = engine.space().unwrap();
    space.iter().map(|shard| shard.file_bytes.unwrap()).sum()
}

fn check(session: &mut Session, records: &Records<Letter>, model: &Model) {
    let mut letters = session.records(records);
    let mut found = Model::new();
    letters
        .scan(|letter| {
            found.insert(letter.name, letter);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(&found == model);
    let names: Vec<u64> = model.keys().copied().collect();
    let found = letters.get_batch(&names).unwrap();
    assert!(found.iter().flatten().eq(model.values()));
    let group = letters.find("group", 7_u64).unwrap().len();
    assert_eq!(
        group,
        model.values().filter(|letter| letter.group == 7).count()
    );
}

fn add(session: &mut Session, records: &Records<Letter>, model: &mut Model, letters: Vec<Letter>) {
    let added = session.records(records).insert_batch(&letters).unwrap();
    assert_eq!(added, letters.len());
    model.extend(letters.into_iter().map(|letter| (letter.name, letter)));
}

fn delete_most(
    session: &mut Session,
    records: &Records<Letter>,
    model: &mut Model,
    random: &mut Random,
) {
    let gone: Vec<u64> = model
        .keys()
        .copied()
        .filter(|_| random.below(10) > 0)
        .collect();
    assert_eq!(
        session.records(records).delete_batch(&gone).unwrap(),
        gone.len()
    );
    for name in gone {
        model.remove(&name);
    }
}

#[test]
fn ten_rounds_of_deleting_most_and_refilling_with_other_sizes_stay_near_what_is_live() {
    let random = &mut Random::seeded();
    for in_file in [false, true] {
        let place = Place::new("churn");
        let settings = settings().arena_bytes(512 << 20);
        let engine = match in_file {
            true => settings.open(place.path()).unwrap(),
            false => settings.build().unwrap(),
        };
        let records = engine.create_records::<Letter>("letters").unwrap();
        let mut session = engine.session().unwrap();
        let mut model = Model::new();
        let mut worst = 0.0_f64;
        for round in 0..10 {
            delete_most(&mut session, &records, &mut model, random);
            // Of each round's own sizes, so that nothing that was freed fits as it is.
            let length = [
                800, 3_000, 1_400, 2_300, 900, 3_700, 1_700, 1_100, 3_300, 700,
            ][round];
            while live_bytes(&model) < 24 << 20 {
                let first = random.next() >> 20;
                let some =
                    (0..200).map(|at| letter(first + at, length + random.below(60) as usize));
                let some: Vec<Letter> = some.collect();
                add(&mut session, &records, &mut model, some);
            }
            let share = used(&engine) as f64 / live_bytes(&model) as f64;
            println!(
                "round {round}: {} letters, {share:.3} times what is live",
                model.len()
            );
            if round > 0 {
                worst = worst.max(share);
            }
        }
        check(&mut session, &records, &model);
        assert!(worst <= 1.5, "{worst}");
        drop(session);
        engine.close().unwrap();
        if in_file {
            let report = ancile::check(place.path()).unwrap();
            assert!(report.is_whole(), "{report:?}");
        }
    }
}

/// Letters and rows that came, and mostly went.
fn fill_and_empty(engine: &Engine, random: &mut Random) -> Model {
    let records = engine.create_records::<Letter>("letters").unwrap();
    let keyed = engine
        .create_table::<[u64; 8]>("keyed", Schema::cells(8).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    for number in 0..30_000 {
        let some = vec![letter(number, random.below(3_000) as usize)];
        add(&mut session, &records, &mut model, some);
        let key = SurrogateId(number);
        session.insert_keyed(&keyed, key, &[number; 8]).unwrap();
    }
    let long = vec![letter(40_000, 3 << 20)];
    add(&mut session, &records, &mut model, long);
    delete_most(&mut session, &records, &mut model, random);
    for number in (0..30_000).filter(|number| number % 10 > 0) {
        session.delete(&keyed, SurrogateId(number)).unwrap();
    }
    model
}

fn check_rows(engine: &Engine, model: &Model) {
    let records = engine.open_records::<Letter>("letters").unwrap();
    let keyed = engine.open_table::<[u64; 8]>("keyed").unwrap();
    let mut session = engine.session().unwrap();
    check(&mut session, &records, model);
    for number in 0..30_000 {
        let found = session.select(&keyed, SurrogateId(number)).unwrap();
        assert_eq!(found, (number % 10 == 0).then_some([number; 8]));
    }
}

fn text_bytes(engine: &Engine) -> u64 {
    let space = engine.space().unwrap();
    let tables = space.iter().flat_map(|shard| &shard.tables);
    let letters = tables.filter(|table| table.table == "letters");
    letters.map(|table| table.text_bytes).sum()
}

#[test]
fn compacting_returns_file_space_keeps_all_rows_and_never_makes_a_file_longer() {
    let random = &mut Random::seeded();
    let place = Place::new("compact");
    let settings = || settings().arena_bytes(512 << 20);
    let engine = settings().open(place.path()).unwrap();
    let mut model = fill_and_empty(&engine, random);
    let full = file_bytes(&engine);
    engine.compact().unwrap();
    let (after, live) = (file_bytes(&engine), live_bytes(&model));
    println!("{full} bytes, {after} after, live {live}");
    // A file has two MiB for its head, and is cut in steps of two.
    assert!(after <= used(&engine) + 2 * (4 << 20), "{after}");
    assert!(after < full / 3, "{after} of {full}");
    // In each shard one chunk of each size of text is not full.
    let texts = text_bytes(&engine);
    assert!(texts < live * 5 / 4 + (4 << 20), "{texts} for {live}");
    check_rows(&engine, &model);
    for round in 0..3 {
        engine.compact().unwrap();
        assert!(file_bytes(&engine) <= after, "round {round}");
    }
    check_rows(&engine, &model);
    // It works on, and grows again.
    let records = engine.open_records::<Letter>("letters").unwrap();
    let mut session = engine.session().unwrap();
    for number in 50_000..55_000 {
        let some = vec![letter(number, 1_000)];
        add(&mut session, &records, &mut model, some);
    }
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(place.path()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let engine = settings().open(place.path()).unwrap();
    check_rows(&engine, &model);
    engine.compact().unwrap();
    check_rows(&engine, &model);
    engine.close().unwrap();
    assert!(ancile::check(place.path()).unwrap().is_whole());
    let read_only = settings().read_only(true).open(place.path()).unwrap();
    assert_eq!(read_only.compact(), Err(ancile::Error::DatabaseReadOnly));
}

#[test]
fn compacting_an_engine_in_memory_keeps_all_rows() {
    let random = &mut Random::seeded();
    let engine = settings().arena_bytes(512 << 20).build().unwrap();
    let model = fill_and_empty(&engine, random);
    let before = used(&engine);
    engine.compact().unwrap();
    assert!(used(&engine) < before / 2, "{} of {before}", used(&engine));
    check_rows(&engine, &model);
    let after = used(&engine);
    engine.compact().unwrap();
    assert_eq!(used(&engine), after);
    check_rows(&engine, &model);
}

#[test]
fn compacting_while_others_change_records_loses_nothing() {
    let place = Place::new("compact-busy");
    let engine = settings()
        .arena_bytes(256 << 20)
        .open(place.path())
        .unwrap();
    let records = engine.create_records::<Letter>("letters").unwrap();
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    let letters = (0..8_000).map(|name| letter(name, 1_500)).collect();
    add(&mut session, &records, &mut model, letters);
    let gone: Vec<u64> = (0..8_000).filter(|name| name % 8 > 0).collect();
    session.records(&records).delete_batch(&gone).unwrap();
    model.retain(|name, _| name % 8 == 0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let (engine, records) = (&engine, &records);
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    let mut written = Model::new();
                    for number in 0..1_500 {
                        let new = letter(10_000 + writer * 10_000 + number, number as usize * 3);
                        if number % 3 == 0 {
                            // Over shards: prepared, and then decided.
                            let other = letter(new.name + 5_000, 200);
                            session
                                .transaction(|tx| {
                                    let mut letters = tx.records(records);
                                    letters.upsert(&new)?;
                                    letters.upsert(&other).map(drop)
                                })
                                .unwrap();
                            written.insert(other.name, other);
                        } else {
                            session.records(records).insert(&new).unwrap();
                        }
                        written.insert(new.name, new);
                    }
                    written
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            engine.compact().unwrap();
        }
        for writer in writers {
            model.extend(writer.join().unwrap());
        }
    });
    engine.compact().unwrap();
    check(&mut session, &records, &model);
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(place.path()).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn compacting_while_a_transaction_has_rows_reserved_keeps_their_places() {
    let place = Place::new("compact-reserved");
    let engine = settings().open(place.path()).unwrap();
    let plain = engine
        .create_table::<[u64; 64]>("plain", Schema::cells(64))
        .unwrap();
    let keyed = engine
        .create_table::<[u64; 2]>("keyed", Schema::cells(2).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    // Enough to be in the way, and then gone: what comes afterwards lies above free memory.
    let gone = engine
        .create_table::<[u64; 64]>("gone", Schema::cells(64))
        .unwrap();
    let rows: Vec<_> = (0..8_000).map(|number| [number; 64]).collect();
    session.insert_batch(&gone, &rows, &mut Vec::new()).unwrap();
    let mut kept = Vec::new();
    session.insert_batch(&plain, &rows, &mut kept).unwrap();
    engine.drop_table("gone").unwrap();
    let is_moved = |engine: &Engine, before| file_bytes(engine) < before;
    for is_committed in [true, false] {
        let before = file_bytes(&engine);
        let mut transaction = session
            .begin(ancile::TransactionOptions::default())
            .unwrap();
        let ids: Vec<_> = (0..40)
            .map(|number| transaction.insert(&plain, &[number; 64]).unwrap())
            .collect();
        transaction
            .insert_keyed(&keyed, SurrogateId(u64::from(is_committed)), &[1, 2])
            .unwrap();
        transaction.update(&plain, kept[0], &[7; 64]).unwrap();
        engine.compact().unwrap();
        assert!(!is_committed || is_moved(&engine, before), "{before}");
        if is_committed {
            transaction.commit().unwrap();
        } else {
            drop(transaction);
        }
        for (number, id) in (0..).zip(&ids) {
            let found = session.select(&plain, *id).unwrap();
            assert_eq!(found, is_committed.then_some([number; 64]));
        }
    }
    kept.remove(0);
    for (number, id) in (1..).zip(kept) {
        assert_eq!(session.select(&plain, id).unwrap(), Some([number; 64]));
    }
    assert_eq!(session.count(&plain).unwrap(), 8_040);
    drop(session);
    engine.close().unwrap();
    let report = ancile::check(place.path()).unwrap();
    assert!(report.is_whole(), "{report:?}");
}
