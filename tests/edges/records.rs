//! Records: random histories against a map, texts of every length, indexes, reopening.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ancile::{
    Engine, Error, Isolation, RecordVerbs, Records, Schema, Session, SurrogateId, TableError,
    Timestamp, TransactionOptions, TransactionRecords, Verbs,
};

use super::database::{Place, settings};

ancile::record! {
    /// A line of a phone book, and one field of each kind.
    pub struct Person {
        pub name: String,
        pub address: String,
        pub telephone: String,
        pub picture: Option<Vec<u8>>,
        pub born: Option<i64>,
        pub seen: Timestamp,
        pub height: f64,
        pub is_listed: bool,
        pub visits: u64,
    }
    key(name);
    hash_index telephone(telephone);
    hash_index born_listed(born, is_listed);
}

fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    seed ^ seed >> 27
}

/// A text of any length that people write, and now and then of a longer one.
fn text(seed: u64) -> String {
    let length = match seed % 16 {
        0 => 0,
        1 => 15,
        2 => 16,
        3 => 24,
        4 if seed % 64 == 4 => 70_000,
        5 => 300,
        _ => seed as usize / 16 % 40,
    };
    (0..length)
        .map(|at| char::from(b'a' + (mix(seed + at as u64) % 26) as u8))
        .collect()
}

fn person(name: u64, seed: u64) -> Person {
    Person {
        name: format!(
            "Person #{name}{}",
            if name.is_multiple_of(5) {
                " of a long and noble house"
            } else {
                ""
            }
        ),
        address: text(seed),
        telephone: format!("07886 {}", seed % 23),
        picture: seed.is_multiple_of(3).then(|| text(seed ^ 99).into_bytes()),
        born: (!seed.is_multiple_of(4)).then_some(1900 + (seed % 7) as i64),
        seen: Timestamp {
            micros: seed as i64,
        },
        height: seed as f64 / 7.0,
        is_listed: seed.is_multiple_of(2),
        visits: seed,
    }
}

type Model = BTreeMap<String, Person>;

fn check(session: &mut Session, records: &Records<Person>, model: &Model) {
    let mut people = session.records(records);
    assert_eq!(people.count().unwrap(), model.len() as u64);
    let names: Vec<&str> = model.keys().map(String::as_str).chain(["nobody"]).collect();
    let found = people.get_batch(&names).unwrap();
    let expected: Vec<Option<Person>> = model.values().cloned().map(Some).chain([None]).collect();
    assert_eq!(found, expected);
    let mut scanned = Model::new();
    people
        .scan(|person| {
            assert!(scanned.insert(person.name.clone(), person).is_none());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(&scanned, model);
    for number in 0..24 {
        let telephone = format!("07886 {number}");
        let mut found = people.find("telephone", &telephone).unwrap();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let has_it = |person: &&Person| person.telephone == telephone;
        let expected: Vec<Person> = model.values().filter(has_it).cloned().collect();
        assert_eq!(found, expected, "{telephone}");
    }
    for born in [None, Some(1900), Some(1906), Some(7)] {
        for listed in [false, true] {
            let found = people.find("born_listed", (born, listed)).unwrap().len();
            let has_it = |person: &&Person| person.born == born && person.is_listed == listed;
            assert_eq!(found, model.values().filter(has_it).count());
        }
    }
}

fn step(session: &mut Session, records: &Records<Person>, model: &mut Model, random: u64) {
    let new = person(random >> 8 & 255, mix(random ^ 1));
    let name = new.name.clone();
    let old = model.get(&name).cloned();
    let mut people = session.records(records);
    match random & 7 {
        0 | 1 => {
            let inserted = people.insert(&new);
            if old.is_some() {
                assert_eq!(inserted, Err(Error::DuplicateKey));
            } else {
                inserted.unwrap();
                model.insert(name, new);
            }
        }
        2 => {
            assert_eq!(people.upsert(&new).unwrap(), old.is_some());
            model.insert(name, new);
        }
        3 => {
            assert_eq!(people.replace(&new).unwrap(), old.is_some());
            if old.is_some() {
                model.insert(name, new);
            }
        }
        4 => {
            let address = new.address.clone();
            let is_there = people
                .update(&name, |person| {
                    person.address.clone_from(&new.address);
                    person.visits += 1;
                })
                .unwrap();
            assert_eq!(is_there, old.is_some());
            if let Some(person) = model.get_mut(&name) {
                person.address = address;
                person.visits += 1;
            }
        }
        5 => {
            assert_eq!(people.delete(&name).unwrap(), old.is_some());
            model.remove(&name);
        }
        6 => assert_eq!(people.get(&name).unwrap(), old),
        _ => {
            let changed = people.update(&name, |person| person.name.push('!'));
            assert_eq!(
                changed,
                if old.is_some() {
                    Err(Error::KeyChanged)
                } else {
                    Ok(false)
                }
            );
        }
    }
}

#[test]
fn random_history_matches_a_map_through_closes_and_in_memory() {
    for shards in [1, 3] {
        let place = Place::new("records");
        let mut model = Model::new();
        for round in 0..4_u64 {
            let engine = settings().shards(shards).open(place.path()).unwrap();
            let records = match round {
                0 => engine.create_records("people").unwrap(),
                _ => engine.open_records("people").unwrap(),
            };
            let mut session = engine.session().unwrap();
            check(&mut session, &records, &model);
            for number in 0..1_500 {
                let random = mix(round << 32 | number | (shards as u64) << 40);
                step(&mut session, &records, &mut model, random);
            }
            check(&mut session, &records, &model);
            drop(session);
            engine.close().unwrap();
        }
    }
    let engine = settings().build().unwrap();
    let records = engine.create_records("people").unwrap();
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    for number in 0..3_000 {
        step(&mut session, &records, &mut model, mix(number ^ 77));
    }
    check(&mut session, &records, &model);
    let names: Vec<String> = model.keys().cloned().collect();
    let mut people = session.records(&records);
    assert_eq!(people.delete_batch(&names).unwrap(), names.len());
    check(&mut session, &records, &Model::new());
}

#[test]
fn closures_that_fail_leave_records_and_texts_as_they_were() {
    let engine = settings().shards(1).build().unwrap();
    let records: Records<Person> = engine.create_records("people").unwrap();
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    for number in 0..200 {
        let person = person(number, mix(number));
        session.records(&records).insert(&person).unwrap();
        model.insert(person.name.clone(), person);
    }
    let before = engine.used_bytes().unwrap();
    for round in 0..50_u64 {
        let result: Result<(), Error> = session.on(0, |context| {
            let mut people = context.records(&records)?;
            for number in 0..60 {
                let random = mix(round << 16 | number);
                let new = person(random % 260, random >> 3);
                match random % 4 {
                    0 => drop(people.insert(&new)),
                    1 => drop(people.upsert(&new)?),
                    2 => drop(people.delete(&new.name)?),
                    _ => drop(people.replace(&new)?),
                }
            }
            if round % 2 == 0 {
                panic!("a fault of the closure");
            }
            Err(Error::Closed)
        });
        assert!(result.is_err());
    }
    check(&mut session, &records, &model);
    let after = engine.used_bytes().unwrap();
    assert!(after[0] < before[0] + (1 << 20), "{before:?} {after:?}");
}

/// Changes one record in a transaction, and in the map as it will be.
fn change_one(
    people: &mut TransactionRecords<'_, '_, Session, Person>,
    next: &mut Model,
    random: u64,
) -> Result<(), Error> {
    let new = person(random % 80, random >> 5);
    let old = next.get(&new.name).cloned();
    assert_eq!(people.get(&new.name)?, old);
    let verb = random >> 60 & 3;
    match verb {
        0 => assert_eq!(
            people.insert(&new).err(),
            old.is_some().then_some(Error::DuplicateKey)
        ),
        1 => assert_eq!(people.upsert(&new)?, old.is_some()),
        2 => assert_eq!(
            people.update(&new.name, |person| person.address = text(random))?,
            old.is_some()
        ),
        _ => assert_eq!(people.delete(&new.name)?, old.is_some()),
    }
    let after = match (verb, old) {
        (0, Some(old)) => Some(old),
        (0, None) | (1, _) => Some(new.clone()),
        (2, old) => old.map(|old| Person {
            address: text(random),
            ..old
        }),
        _ => None,
    };
    assert_eq!(people.get(&new.name)?, after);
    match after {
        Some(after) => drop(next.insert(new.name, after)),
        None => drop(next.remove(&new.name)),
    }
    Ok(())
}

#[test]
fn transactions_over_shards_change_all_records_or_none() {
    let place = Place::new("records-transactions");
    let engine = settings().shards(3).open(place.path()).unwrap();
    let records: Records<Person> = engine.create_records("people").unwrap();
    let counts = engine
        .create_table::<[u64; 1]>("counts", Schema::cells(1).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    session.insert_keyed(&counts, SurrogateId(1), &[0]).unwrap();
    let mut model = Model::new();
    let mut committed = 0;
    for round in 0..300_u64 {
        let isolation = if round % 2 == 0 {
            Isolation::ReadCommitted
        } else {
            Isolation::Serializable
        };
        let mut next = model.clone();
        let is_kept = round % 3 > 0;
        let result: Result<(), Error> =
            session.transaction_with(TransactionOptions::new(isolation), |transaction| {
                next.clone_from(&model);
                for number in 0..5 {
                    let mut people = transaction.records(&records);
                    change_one(&mut people, &mut next, mix(round << 8 | number))?;
                }
                let [count] = transaction
                    .select(&counts, SurrogateId(1))?
                    .unwrap_or_default();
                transaction.update(&counts, SurrogateId(1), &[count + 1])?;
                if is_kept { Ok(()) } else { Err(Error::Closed) }
            });
        assert_eq!(result.is_ok(), is_kept);
        if is_kept {
            model = next;
            committed += 1;
        }
        if round % 50 == 0 {
            check(&mut session, &records, &model);
        }
    }
    check(&mut session, &records, &model);
    assert_eq!(
        session.select(&counts, SurrogateId(1)).unwrap(),
        Some([committed])
    );
    drop(session);
    engine.close().unwrap();
    let engine = settings().shards(3).open(place.path()).unwrap();
    let records = engine.open_records("people").unwrap();
    check(&mut engine.session().unwrap(), &records, &model);
}

#[test]
fn sessions_that_change_the_same_records_lose_none_of_their_changes() {
    let engine = settings().shards(2).build().unwrap();
    let records: Records<Person> = engine.create_records("people").unwrap();
    let names: Vec<String> = (0..4).map(|number| person(number, 1).name).collect();
    let mut session = engine.session().unwrap();
    for number in 0..4 {
        let new = Person {
            visits: 1_000,
            ..person(number, 1)
        };
        session.records(&records).insert(&new).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (engine, records, names) = (&engine, &records, &names);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                for round in 0..200_u64 {
                    let random = mix(thread << 32 | round);
                    let (from, to) = ((random % 4) as usize, (random >> 8) as usize % 4);
                    if from == to {
                        let mut people = session.records(records);
                        people
                            .update(&names[from], |person| person.address = text(random))
                            .unwrap();
                        continue;
                    }
                    session
                        .transaction(|transaction| {
                            let mut people = transaction.records(records);
                            people.update(&names[from], |person| {
                                person.visits -= 1;
                                person.address = text(random);
                            })?;
                            people.update(&names[to], |person| person.visits += 1)?;
                            Ok::<_, Error>(())
                        })
                        .unwrap();
                }
            });
        }
    });
    let found = session.records(&records).get_batch(&names).unwrap();
    let total: u64 = found.iter().flatten().map(|person| person.visits).sum();
    assert_eq!(total, 4_000);
}

ancile::record! {
    /// A traveller, of whom a passport names one at most.
    pub struct Traveller {
        pub name: String,
        pub passport: Option<String>,
        pub seat: u64,
        pub row: u64,
    }
    key(name);
    unique_index passport(passport);
    hash_index row(row);
    unique_index place(row, seat);
}

fn traveller(seed: u64) -> Traveller {
    Traveller {
        name: format!("Traveller #{}", seed % 40),
        passport: (seed >> 8 & 3 > 0)
            .then(|| format!("passport number {} of a long kind", seed >> 16 & 31)),
        seat: seed >> 24 & 7,
        row: seed >> 32 & 7,
    }
}

/// What speaks against a record beside others.
fn clash(model: &BTreeMap<String, Traveller>, new: &Traveller) -> Option<Error> {
    let others = || model.values().filter(|other| other.name != new.name);
    let by_passport =
        others().any(|other| new.passport.is_some() && other.passport == new.passport);
    let by_place = others().any(|other| (other.row, other.seat) == (new.row, new.seat));
    let index = match (by_passport, by_place) {
        (true, _) => "passport",
        (_, true) => "place",
        _ => return None,
    };
    Some(Error::DuplicateValue {
        index: index.to_owned(),
    })
}

/// Whether each traveller is found by its own values, and nobody else.
fn check_found(
    travellers: &mut RecordVerbs<'_, Session, Traveller>,
    model: &BTreeMap<String, Traveller>,
) {
    for traveller in model.values() {
        let found = travellers.find("place", (traveller.row, traveller.seat));
        assert_eq!(found.unwrap(), std::slice::from_ref(traveller));
        if let Some(passport) = &traveller.passport {
            let found = travellers.find("passport", passport).unwrap();
            assert_eq!(found, std::slice::from_ref(traveller));
        }
    }
}

#[test]
fn unique_values_are_unique_over_all_shards_and_find_their_record() {
    let place = Place::new("unique");
    let mut model: BTreeMap<String, Traveller> = BTreeMap::new();
    for round in 0..3_u64 {
        let engine = settings().shards(3).open(place.path()).unwrap();
        let records = match round {
            0 => engine.create_records::<Traveller>("travellers").unwrap(),
            _ => engine.open_records::<Traveller>("travellers").unwrap(),
        };
        assert_eq!(engine.tables().len(), 1);
        let mut session = engine.session().unwrap();
        let mut travellers = session.records(&records);
        for number in 0..400 {
            let random = mix(round << 32 | number);
            let new = traveller(random);
            let old = model.get(&new.name).cloned();
            let clash = clash(&model, &new);
            match random & 3 {
                0 => {
                    let result = travellers.insert(&new);
                    let expected = match old {
                        Some(_) => Some(Error::DuplicateKey),
                        None => clash,
                    };
                    assert_eq!(result.clone().err(), expected);
                    if result.is_ok() {
                        model.insert(new.name.clone(), new);
                    }
                }
                1 => match clash {
                    Some(clash) => assert_eq!(travellers.upsert(&new), Err(clash)),
                    None => {
                        assert_eq!(travellers.upsert(&new).unwrap(), old.is_some());
                        model.insert(new.name.clone(), new);
                    }
                },
                2 => {
                    let changed = travellers.update(&new.name, |found| *found = new.clone());
                    match (old, clash) {
                        (None, _) => assert_eq!(changed, Ok(false)),
                        (Some(_), Some(clash)) => assert_eq!(changed, Err(clash)),
                        (Some(_), None) => {
                            assert_eq!(changed, Ok(true));
                            model.insert(new.name.clone(), new);
                        }
                    }
                }
                _ => {
                    assert_eq!(travellers.delete(&new.name).unwrap(), old.is_some());
                    model.remove(&new.name);
                }
            }
        }
        check_found(&mut travellers, &model);
        assert_eq!(travellers.find("passport", "nobody's").unwrap(), []);
        assert_eq!(travellers.count().unwrap(), model.len() as u64);
        let error = session
            .on(0, |context| {
                context.records(&records)?.delete("Traveller #1")
            })
            .unwrap_err();
        assert_eq!(error, Error::UniqueElsewhere);
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn one_of_many_who_insert_the_same_value_at_once_has_it() {
    let engine = settings().shards(2).build().unwrap();
    let records = engine.create_records::<Traveller>("travellers").unwrap();
    let threads = 4;
    let inserted: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let insert = |thread: u64| {
            let (engine, records) = (&engine, &records);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                let mut had = Vec::new();
                for passport in 0..60 {
                    let new = Traveller {
                        name: format!("{thread} {passport}"),
                        passport: Some(format!("passport {passport}")),
                        seat: passport,
                        row: thread,
                    };
                    match session.records(records).insert(&new) {
                        Ok(()) => had.push(passport),
                        Err(Error::DuplicateValue { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                had
            })
        };
        let inserting: Vec<_> = (0..threads).map(insert).collect();
        inserting
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut all: Vec<u64> = inserted.concat();
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<u64>>());
    let mut session = engine.session().unwrap();
    assert_eq!(session.records(&records).count().unwrap(), 60);
    engine.drop_table("travellers").unwrap();
    engine.create_records::<Traveller>("travellers").unwrap();
}

#[test]
fn longest_texts_are_kept_and_longer_ones_refused() {
    ancile::record! {
        struct Note {
            number: u64,
            text: String,
            bytes: Vec<u8>,
        }
        key(number);
    }
    let engine = Engine::builder()
        .shards(1)
        .arena_bytes(256 << 20)
        .build()
        .unwrap();
    let records = engine.create_records::<Note>("notes").unwrap();
    let mut session = engine.session().unwrap();
    let mut notes = session.records(&records);
    for (number, length) in [0, 1, 15, 16, 64 << 10, 16 << 20].into_iter().enumerate() {
        let note = Note {
            number: number as u64,
            text: "ü".repeat(length / 2),
            bytes: vec![0xff; length],
        };
        notes.insert(&note).unwrap();
        assert!(notes.get(note.number).unwrap() == Some(note));
    }
    let note = Note {
        number: 99,
        text: "x".repeat((16 << 20) + 1),
        bytes: Vec::new(),
    };
    let too_long = Err(Error::TextTooLong {
        bytes: (16 << 20) + 1,
    });
    assert_eq!(notes.insert(&note), too_long);
    assert_eq!(notes.get(99_u64).unwrap(), None);
    assert_eq!(notes.get("99"), Err(Error::KeyShape));
    assert_eq!(notes.get((99_u64, 1_u64)), Err(Error::KeyShape));
    assert!(matches!(
        notes.find("age", 7_u64),
        Err(Error::IndexMissing { .. })
    ));
}

#[test]
fn one_value_of_an_index_may_have_any_number_of_records() {
    let engine = settings().build().unwrap();
    let records: Records<Person> = engine.create_records("people").unwrap();
    let mut session = engine.session().unwrap();
    let mut people = session.records(&records);
    let all: Vec<Person> = (0..20_000)
        .map(|number| Person {
            telephone: "07886 1".to_owned(),
            ..person(number, 6)
        })
        .collect();
    assert_eq!(people.insert_batch(&all).unwrap(), all.len());
    assert_eq!(people.insert_batch(&all).unwrap(), 0);
    assert_eq!(
        people.find("telephone", "07886 1").unwrap().len(),
        all.len()
    );
    let names: Vec<&str> = all.iter().map(|person| &*person.name).collect();
    assert_eq!(people.delete_batch(&names[1..]).unwrap(), all.len() - 1);
    assert_eq!(people.find("telephone", "07886 1").unwrap(), all[..1]);
}

#[test]
fn schemas_and_types_that_do_not_fit_say_what_differs() {
    ancile::record! {
        struct Other {
            name: String,
            address: Option<String>,
        }
        key(name);
    }
    let engine = settings().build().unwrap();
    engine.create_records::<Person>("people").unwrap();
    let error = engine.open_records::<Other>("people").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"address\" of kind Text in the table"),
        "{error}"
    );
    assert!(matches!(
        engine.open_table::<[u64; 2]>("people"),
        Err(TableError::Shape { .. })
    ));
}
