//! Records that get other fields and indexes while they are in use.

mod killed;
mod unique;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ancile::{Error, Verbs};

use super::database::{Place, settings};

fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    seed ^ seed >> 27
}

/// A text of some length.
fn text(seed: u64) -> String {
    let length = match seed % 16 {
        0 => 0,
        1 => 15,
        2 => 16,
        3 => 300,
        _ => seed as usize / 16 % 40,
    };
    let letter = |at| char::from(b'a' + (mix(seed + at as u64) % 26) as u8);
    (0..length).map(letter).collect()
}

mod grown {
    ancile::record! {
        /// As `Person` was at first.
        pub struct First {
            pub name: String,
            pub address: String,
        }
        key(name);
        hash_index address(address);
    }

    ancile::record! {
        /// As it became: two more fields, another index.
        pub struct Second {
            pub name: String,
            pub address: String,
            pub place: String,
            pub visits: Option<u64>,
        }
        key(name);
        hash_index place(place);
        hash_index visits(visits, place);
    }
}

#[test]
fn table_takes_new_fields_and_indexes_in_place() {
    use grown::{First, Second};
    let place = Place::new("grown");
    let first = |number: u64| First {
        name: format!("a name that is somewhat long {number}"),
        address: text(number),
    };
    let second = |number: u64| Second {
        name: first(number).name,
        address: first(number).address,
        place: "a place that all had before".to_owned(),
        visits: None,
    };
    let people = 6_000;
    {
        let engine = settings().open(place.path()).unwrap();
        let records = engine.create_records::<First>("people").unwrap();
        let mut session = engine.session().unwrap();
        let all: Vec<First> = (0..people).map(first).collect();
        assert_eq!(
            session.records(&records).insert_batch(&all).unwrap(),
            all.len()
        );
        let error = engine.open_records::<Second>("people").unwrap_err();
        assert!(error.to_string().contains("no field \"place\""), "{error}");
        let mut told = 0;
        let altered = engine.alter_records("people", &second(0), |progress| {
            assert!(progress.done <= progress.total);
            told += 1;
        });
        let altered = altered.unwrap();
        assert!(told > 0);
        assert_eq!(session.records(&records).get("x"), Err(Error::TableGone));
        let mut grown = session.records(&altered);
        assert_eq!(grown.get(&first(7).name).unwrap(), Some(second(7)));
        assert!(matches!(
            grown.find("address", "x"),
            Err(Error::IndexMissing { .. })
        ));
        drop(session);
        engine.close().unwrap();
    }
    let engine = settings().open(place.path()).unwrap();
    assert!(engine.open_records::<First>("people").is_err());
    let records = engine.open_records::<Second>("people").unwrap();
    let mut session = engine.session().unwrap();
    let mut grown = session.records(&records);
    let names: Vec<String> = (0..people).map(|number| first(number).name).collect();
    let found = grown.get_batch(&names).unwrap();
    let expected: Vec<Option<Second>> = (0..people).map(|number| Some(second(number))).collect();
    assert!(found == expected);
    assert!(
        grown
            .update(&names[3], |person| person.visits = Some(3))
            .unwrap()
    );
    let found = grown
        .find("visits", (Some(3_u64), second(0).place))
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        grown.find("place", second(0).place).unwrap().len(),
        people as usize
    );
}

#[test]
fn index_that_is_built_while_others_write_has_exactly_their_records() {
    use grown::First;
    ancile::record! {
        struct Plain {
            name: String,
            address: String,
        }
        key(name);
    }
    let engine = settings().build().unwrap();
    let records = engine.create_records::<Plain>("people").unwrap();
    let plain = |number: u64| Plain {
        name: format!("{number}"),
        address: format!("{} of an address that has a block", number % 50),
    };
    let mut session = engine.session().unwrap();
    let all: Vec<Plain> = (0..30_000).map(plain).collect();
    session.records(&records).insert_batch(&all).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                random = mix(random ^ 5).wrapping_add(1);
                let new = plain(random % 40_000);
                let mut people = session.records(&records);
                match random >> 40 & 3 {
                    0 => drop(people.insert(&new)),
                    1 => drop(people.delete(&new.name).unwrap()),
                    _ => drop(
                        people
                            .update(&new.name, |person| {
                                person.address = plain(random >> 20 & 63).address;
                            })
                            .unwrap(),
                    ),
                }
            }
        });
        let template = First {
            name: String::new(),
            address: String::new(),
        };
        engine.alter_records("people", &template, |_| {}).unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let records = engine.open_records::<First>("people").unwrap();
    let mut by_address: BTreeMap<String, usize> = BTreeMap::new();
    let mut session = engine.session().unwrap();
    let mut people = session.records(&records);
    people
        .scan(|person| {
            *by_address.entry(person.address).or_default() += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    for number in 0..64 {
        let address = plain(number).address;
        let found = people.find("address", &address).unwrap().len();
        assert_eq!(
            found,
            by_address.get(&address).copied().unwrap_or(0),
            "{address}"
        );
    }
}
