//! Ordered indexes of records: random histories against a map, ranges and beginnings in both directions,
//! transactions that fail, indexes that are added and dropped, values that are too long.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering as Sync};

use ancile::{
    Engine, Error, INDEXED_BYTES_MAX, KeyBounds, RecordVerbs, Records, Session, TableError,
    Timestamp, TransactionOptions, Value, Verbs, check,
};

use super::database::{Place, settings};

ancile::record! {
    /// A field of each kind.
    pub struct Item {
        pub id: u64,
        pub number: u64,
        pub signed: i64,
        pub float: f64,
        pub is: bool,
        pub moment: Timestamp,
        pub text: String,
        pub bytes: Option<Vec<u8>>,
        pub maybe: Option<i64>,
    }
    key(id);
    ordered_index number(number);
    hash_index is(is);
    ordered_index signed_text(signed, text);
    ordered_index float(float);
    ordered_index bytes_maybe(bytes, maybe);
    ordered_index is_moment(is, moment);
    ordered_index text(text);
}

ancile::record! {
    /// As an item, before it had indexes.
    pub struct Bare {
        pub id: u64,
        pub number: u64,
        pub signed: i64,
        pub float: f64,
        pub is: bool,
        pub moment: Timestamp,
        pub text: String,
        pub bytes: Option<Vec<u8>>,
        pub maybe: Option<i64>,
    }
    key(id);
}

fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ seed >> 31
}

fn text(seed: u64) -> String {
    let length = [0, 1, 2, 2, 3, 14, 15, 16, 40, 700][seed as usize % 10];
    let letters = ['a', 'b', '\0', 'ß'];
    let mut text = String::new();
    for at in 0..length {
        text.push(letters[mix(seed >> 8 ^ at) as usize % 4]);
    }
    text
}

fn item(id: u64, seed: u64) -> Item {
    let seed = mix(seed);
    Item {
        id,
        number: seed % 40,
        signed: (seed >> 8) as i64 % 4 - 2,
        float: [-0.0, 0.0, 1.5, -1e300, f64::INFINITY][(seed >> 16) as usize % 5],
        is: seed & 1 << 20 == 0,
        moment: Timestamp {
            micros: (seed >> 24) as i64 % 50 - 25,
        },
        text: text(seed >> 32),
        bytes: (seed >> 3 & 3 > 0)
            .then(|| vec![[0, 255, 7][(seed >> 5) as usize % 3]; (seed >> 12) as usize % 4]),
        maybe: (seed >> 6 & 1 > 0).then_some((seed >> 40) as i64 % 3),
    }
}

type Model = BTreeMap<u64, Item>;
type Compare = fn(&Item, &Item) -> Ordering;
type Items<'s> = RecordVerbs<'s, Session, Item>;

fn by_number(one: &Item, other: &Item) -> Ordering {
    one.number.cmp(&other.number)
}

fn by_signed_text(one: &Item, other: &Item) -> Ordering {
    (one.signed, &one.text).cmp(&(other.signed, &other.text))
}

fn by_float(one: &Item, other: &Item) -> Ordering {
    one.float.total_cmp(&other.float)
}

fn by_bytes_maybe(one: &Item, other: &Item) -> Ordering {
    (&one.bytes, one.maybe).cmp(&(&other.bytes, other.maybe))
}

fn by_is_moment(one: &Item, other: &Item) -> Ordering {
    (one.is, one.moment.micros).cmp(&(other.is, other.moment.micros))
}

fn by_text(one: &Item, other: &Item) -> Ordering {
    one.text.cmp(&other.text)
}

const INDEXES: [(&str, Compare); 6] = [
    ("number", by_number),
    ("signed_text", by_signed_text),
    ("float", by_float),
    ("bytes_maybe", by_bytes_maybe),
    ("is_moment", by_is_moment),
    ("text", by_text),
];

/// What was visited must be the expected items, each once, in the order of the index.
fn check_visited(mut visited: Vec<Item>, mut expected: Vec<Item>, compare: Compare, what: &str) {
    let mut pairs = visited.windows(2);
    assert!(
        pairs.all(|pair| compare(&pair[0], &pair[1]).is_le()),
        "{what}"
    );
    visited.sort_by_key(|item| item.id);
    expected.sort_by_key(|item| item.id);
    assert_eq!(visited, expected, "{what}");
}

fn check_range<B: KeyBounds + Clone>(
    items: &mut Items<'_>,
    model: &Model,
    (index, bounds): (&str, B),
    is_in: impl Fn(&Item) -> bool,
) {
    let compare = INDEXES.iter().find(|(name, _)| *name == index).unwrap().1;
    let expected: Vec<Item> = model.values().filter(|item| is_in(item)).cloned().collect();
    let (mut visited, mut back) = (Vec::new(), Vec::new());
    items
        .range(index, bounds.clone(), |item| {
            visited.push(item);
            ControlFlow::Continue(())
        })
        .unwrap();
    items
        .range_rev(index, bounds.clone(), |item| {
            back.push(item);
            ControlFlow::Continue(())
        })
        .unwrap();
    back.reverse();
    assert_eq!(
        items.count_range(index, bounds.clone()).unwrap(),
        expected.len() as u64
    );
    check_visited(back, expected.clone(), compare, index);
    check_visited(visited, expected.clone(), compare, index);
    let mut first = None;
    let whole = items.range(index, bounds, |item| {
        first = Some(item);
        ControlFlow::Break(())
    });
    whole.unwrap();
    let least = expected.into_iter().min_by(compare);
    assert_eq!(first.is_some(), least.is_some());
    if let (Some(first), Some(least)) = (first, least) {
        assert!(compare(&first, &least).is_eq());
    }
}

fn check_prefix(items: &mut Items<'_>, model: &Model, (signed, beginning): (i64, &str)) {
    let is_in = |item: &&Item| item.signed == signed && item.text.starts_with(beginning);
    let expected: Vec<Item> = model.values().filter(is_in).cloned().collect();
    let (mut visited, mut back) = (Vec::new(), Vec::new());
    let count = items.count_prefix("signed_text", (signed, beginning));
    assert_eq!(count.unwrap(), expected.len() as u64);
    items
        .prefix("signed_text", (signed, beginning), |item| {
            visited.push(item);
            ControlFlow::Continue(())
        })
        .unwrap();
    items
        .prefix_rev("signed_text", (signed, beginning), |item| {
            back.push(item);
            ControlFlow::Continue(())
        })
        .unwrap();
    back.reverse();
    check_visited(visited, expected.clone(), by_signed_text, beginning);
    check_visited(back, expected, by_signed_text, beginning);
}

fn check_all(session: &mut Session, records: &Records<Item>, model: &Model) {
    let items = &mut session.records(records);
    assert_eq!(items.count().unwrap(), model.len() as u64);
    for (index, _) in INDEXES {
        check_range(items, model, (index, ..), |_| true);
    }
    for number in [0, 7, 39, 41] {
        let mut found = items.find("number", number).unwrap();
        found.sort_by_key(|item| item.id);
        let equal = model.values().filter(|item| item.number == number);
        assert_eq!(found, equal.cloned().collect::<Vec<_>>());
        check_range(items, model, ("number", number..20), |item| {
            (number..20).contains(&item.number)
        });
        check_range(items, model, ("number", ..=number), |item| {
            item.number <= number
        });
        let bounds = (Bound::Excluded(number), Bound::Unbounded);
        check_range(items, model, ("number", bounds), |item| {
            item.number > number
        });
    }
    for signed in -2..=2 {
        check_range(items, model, ("signed_text", signed..=1), |item| {
            (signed..=1).contains(&item.signed)
        });
        check_range(
            items,
            model,
            ("signed_text", (signed, "ab")..(1, "b")),
            |item| {
                let value = (item.signed, &item.text[..]);
                value >= (signed, "ab") && value < (1, "b")
            },
        );
        for beginning in ["", "a", "ab", "\0", "ß", "ß\0", "nothing"] {
            check_prefix(items, model, (signed, beginning));
        }
    }
    check_range(items, model, ("float", -1e301..0.0), |item| {
        item.float.total_cmp(&0.0).is_lt()
    });
    let nothing = None::<&[u8]>;
    check_range(items, model, ("bytes_maybe", nothing..=nothing), |item| {
        item.bytes.is_none()
    });
    let some = Some([0_u8, 0].as_slice());
    check_range(
        items,
        model,
        ("bytes_maybe", (some, None::<i64>)..),
        |item| item.bytes.as_deref() >= some,
    );
    let zero = Timestamp { micros: 0 };
    check_range(items, model, ("is_moment", (true, zero)..), |item| {
        item.is && item.moment.micros >= 0
    });
    check_range(
        items,
        model,
        ("text", "a".to_owned().."b".to_owned()),
        |item| item.text.starts_with('a'),
    );
}

fn step(items: &mut Items<'_>, model: &mut Model, random: u64) {
    let new = item(random >> 8 & 511, random ^ 1);
    let old = model.get(&new.id).cloned();
    match random % 5 {
        0 => match items.insert(&new) {
            Err(Error::DuplicateKey) => assert!(old.is_some()),
            done => {
                done.unwrap();
                model.insert(new.id, new);
            }
        },
        1 => {
            items.upsert(&new).unwrap();
            model.insert(new.id, new);
        }
        2 => {
            assert_eq!(items.replace(&new).unwrap(), old.is_some());
            if old.is_some() {
                model.insert(new.id, new);
            }
        }
        3 => {
            let change = |item: &mut Item| item.number = new.number;
            assert_eq!(items.update(new.id, change).unwrap(), old.is_some());
            model.entry(new.id).and_modify(change);
        }
        _ => {
            assert_eq!(items.delete(new.id).unwrap(), old.is_some());
            model.remove(&new.id);
        }
    }
}

fn assert_sound(path: &std::path::Path) {
    let report = check(path).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn random_history_is_found_in_order_through_closes_and_in_memory() {
    for shards in [1, 2, 4] {
        let place = Place::new("ordered");
        let mut model = Model::new();
        for round in 0..3_u64 {
            let engine = settings().shards(shards).open(place.path()).unwrap();
            let records: Records<Item> = match round {
                0 => engine.create_records("items").unwrap(),
                _ => engine.open_records("items").unwrap(),
            };
            let mut session = engine.session().unwrap();
            check_all(&mut session, &records, &model);
            for number in 0..1_200 {
                let random = mix(round << 32 | number | (shards as u64) << 40);
                step(&mut session.records(&records), &mut model, random);
            }
            check_all(&mut session, &records, &model);
            drop(session);
            if round == 1 {
                engine.compact().unwrap();
            }
            engine.close().unwrap();
            assert_sound(place.path());
        }
    }
    let engine = settings().build().unwrap();
    let records: Records<Item> = engine.create_records("items").unwrap();
    let (mut session, mut model) = (engine.session().unwrap(), Model::new());
    for number in 0..3_000 {
        step(&mut session.records(&records), &mut model, mix(number ^ 77));
    }
    check_all(&mut session, &records, &model);
    let ids: Vec<u64> = model.keys().copied().collect();
    let deleted = session.records(&records).delete_batch(&ids).unwrap();
    assert_eq!(deleted, ids.len());
    check_all(&mut session, &records, &Model::new());
}

fn filled(engine: &Engine, count: u64) -> (Records<Item>, Model) {
    let records: Records<Item> = engine.create_records("items").unwrap();
    let all: Vec<Item> = (0..count).map(|id| item(id, id)).collect();
    let mut session = engine.session().unwrap();
    session.records(&records).insert_batch(&all).unwrap();
    (
        records,
        all.into_iter().map(|item| (item.id, item)).collect(),
    )
}

#[test]
fn closures_that_fail_leave_ordered_indexes_as_they_were() {
    for is_file in [false, true] {
        let place = Place::new("ordered-closures");
        let settings = settings().shards(1);
        let engine = match is_file {
            true => settings.open(place.path()).unwrap(),
            false => settings.build().unwrap(),
        };
        let (records, model) = filled(&engine, 300);
        let mut session = engine.session().unwrap();
        let mut before = Vec::new();
        for round in 0..40_u64 {
            if round == 20 {
                before = engine.used_bytes().unwrap();
            }
            let result: Result<(), Error> = session.on(0, |context| {
                let mut items = context.records(&records)?;
                for number in 0..80 {
                    let random = mix(round << 16 | number);
                    let new = item(random % 400, random >> 3);
                    match random >> 50 & 3 {
                        0 => drop(items.insert(&new)),
                        1 => drop(items.upsert(&new)?),
                        2 => drop(items.delete(new.id)?),
                        _ => drop(items.replace(&new)?),
                    }
                    let mut found = 0;
                    items.range("number", new.number..=new.number, |_| {
                        found += 1;
                        ControlFlow::Continue(())
                    })?;
                    let equal = items.find("number", new.number)?.len();
                    assert_eq!(
                        (found, found as u64),
                        (equal, items.count_prefix("number", new.number)?)
                    );
                }
                assert_eq!(items.count_range("text", ..)?, items.count());
                if round % 2 == 0 {
                    panic!("a fault of the closure");
                }
                Err(Error::Closed)
            });
            assert!(result.is_err());
        }
        check_all(&mut session, &records, &model);
        let after = engine.used_bytes().unwrap();
        assert!(after[0] < before[0] + (1 << 20), "{before:?} {after:?}");
        drop(session);
        engine.close().unwrap();
        if is_file {
            assert_sound(place.path());
        }
    }
}

#[test]
fn transactions_over_shards_change_ordered_indexes_or_leave_them() {
    let place = Place::new("ordered-transactions");
    let engine = settings().shards(3).open(place.path()).unwrap();
    let (records, mut model) = filled(&engine, 200);
    let mut session = engine.session().unwrap();
    for round in 0..200_u64 {
        let is_kept = round % 3 > 0;
        let mut next = model.clone();
        let result: Result<(), Error> =
            session.transaction_with(TransactionOptions::default(), |transaction| {
                next.clone_from(&model);
                let mut items = transaction.records(&records);
                for number in 0..6 {
                    let random = mix(round << 8 | number);
                    let new = item(random % 260, random >> 5);
                    if random >> 50 & 3 == 0 {
                        assert_eq!(items.delete(new.id)?, next.remove(&new.id).is_some());
                    } else {
                        items.upsert(&new)?;
                        next.insert(new.id, new);
                    }
                }
                if is_kept { Ok(()) } else { Err(Error::Closed) }
            });
        assert_eq!(result.is_ok(), is_kept);
        if is_kept {
            model = next;
        }
        if round % 40 == 0 {
            check_all(&mut session, &records, &model);
        }
    }
    check_all(&mut session, &records, &model);
    drop(session);
    engine.close().unwrap();
    assert_sound(place.path());
}

#[test]
fn transactions_that_meet_conflicts_let_ordered_indexes_be() {
    let engine = settings().shards(2).build().unwrap();
    let (records, _) = filled(&engine, 40);
    std::thread::scope(|scope| {
        for worker in 0..3_u64 {
            let (engine, records) = (&engine, &records);
            scope.spawn(move || {
                let mut session = engine.session().unwrap();
                for round in 0..300 {
                    let random = mix(worker << 32 | round);
                    let done: Result<(), Error> = session.transaction(|transaction| {
                        let mut items = transaction.records(records);
                        for number in 0..3 {
                            let id = mix(random ^ number) % 50;
                            match mix(random) % 4 {
                                0 => drop(items.delete(id)?),
                                _ => drop(items.upsert(&item(id, random ^ number))?),
                            }
                        }
                        Ok(())
                    });
                    done.unwrap();
                }
            });
        }
    });
    let mut session = engine.session().unwrap();
    let mut model = Model::new();
    session
        .records(&records)
        .scan(|item| {
            model.insert(item.id, item);
            ControlFlow::Continue(())
        })
        .unwrap();
    check_all(&mut session, &records, &model);
}

#[test]
fn values_that_are_too_long_are_refused_and_nothing_is_changed() {
    let engine = settings().build().unwrap();
    let (records, model) = filled(&engine, 30);
    let mut session = engine.session().unwrap();
    // A text takes two bytes more, each byte 0 another one, and a number eight.
    let longest = "x".repeat(INDEXED_BYTES_MAX - 10 - 2) + "\0";
    let long = Item {
        text: longest.clone() + "x",
        ..item(1_000, 1)
    };
    let refused = Error::IndexedTooLong {
        index: "signed_text".to_owned(),
        bytes: INDEXED_BYTES_MAX + 1,
        limit: INDEXED_BYTES_MAX,
    };
    let mut items = session.records(&records);
    assert_eq!(items.insert(&long).unwrap_err(), refused);
    assert_eq!(items.upsert(&long).unwrap_err(), refused);
    let update = items.update(7_u64, |item| item.text.clone_from(&long.text));
    assert_eq!(update.unwrap_err(), refused);
    let replaced = items.replace(&Item {
        id: 7,
        ..long.clone()
    });
    assert_eq!(replaced.unwrap_err(), refused);
    check_all(&mut session, &records, &model);
    for id in [7, 1_000] {
        let item = Item { id, ..long.clone() };
        let done: Result<bool, Error> =
            session.transaction(|transaction| transaction.records(&records).upsert(&item));
        assert_eq!(done.unwrap_err(), refused);
    }
    let shard = (0..2).find(|&shard| {
        let found = session.on(shard, |context| context.records(&records)?.get(7_u64));
        found.unwrap().is_some()
    });
    let done: Result<bool, Error> = session.on(shard.unwrap(), |context| {
        let mut items = context.records(&records)?;
        let refused = items.replace(&Item {
            id: 7,
            ..long.clone()
        });
        assert!(matches!(refused, Err(Error::IndexedTooLong { .. })));
        items.delete(7_u64)
    });
    assert!(done.unwrap());
    let mut model = model;
    model.remove(&7);
    check_all(&mut session, &records, &model);
    let fitting = Item {
        text: longest.clone(),
        ..long
    };
    session.records(&records).insert(&fitting).unwrap();
    let found = session.records(&records).find("text", &longest).unwrap();
    assert_eq!(found, [fitting]);
}

#[test]
fn ordered_indexes_are_added_while_others_write_and_dropped_again() {
    for shards in [1, 3] {
        let place = Place::new("ordered-added");
        let engine = settings().shards(shards).open(place.path()).unwrap();
        let bare: Records<Bare> = engine.create_records("items").unwrap();
        let is_done = AtomicBool::new(false);
        let mut session = engine.session().unwrap();
        let all: Vec<Bare> = (0..20_000).map(|id| bare_of(item(id, id))).collect();
        session.records(&bare).insert_batch(&all).unwrap();
        let records: Records<Item> = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut session = engine.session().unwrap();
                for number in 0.. {
                    let random = mix(number);
                    let new = bare_of(item(random % 30_000, random));
                    let mut items = session.records(&bare);
                    match number % 3 {
                        0 => drop(items.delete(new.id).unwrap()),
                        _ => drop(items.upsert(&new).unwrap()),
                    }
                    if is_done.load(Sync::Relaxed) {
                        break;
                    }
                }
            });
            let mut told = Vec::new();
            let altered =
                engine.alter_records("items", &item(0, 0), |progress| told.push(progress));
            is_done.store(true, Sync::Relaxed);
            assert!(told.last().is_some_and(|last| last.done == last.total));
            altered.unwrap()
        });
        let mut model = Model::new();
        session
            .records(&records)
            .scan(|item| {
                model.insert(item.id, item);
                ControlFlow::Continue(())
            })
            .unwrap();
        check_all(&mut session, &records, &model);
        engine
            .alter_records("items", &bare_of(item(0, 0)), |_| {})
            .unwrap();
        let gone = session.records(&records).count_range("number", ..);
        assert_eq!(gone, Err(Error::TableGone));
        let records = engine.alter_records("items", &item(0, 0), |_| {}).unwrap();
        check_all(&mut session, &records, &model);
        drop(session);
        engine.close().unwrap();
        assert_sound(place.path());
    }
}

fn bare_of(item: Item) -> Bare {
    let Item {
        id,
        number,
        signed,
        float,
        is,
        moment,
        text,
        bytes,
        maybe,
    } = item;
    Bare {
        id,
        number,
        signed,
        float,
        is,
        moment,
        text,
        bytes,
        maybe,
    }
}

#[test]
fn index_is_not_added_where_a_value_is_too_long() {
    let engine = settings().build().unwrap();
    let bare: Records<Bare> = engine.create_records("items").unwrap();
    let mut session = engine.session().unwrap();
    let mut long = bare_of(item(1, 1));
    long.text = "x".repeat(3_000);
    session.records(&bare).insert(&long).unwrap();
    let refused = engine
        .alter_records("items", &item(0, 0), |_| {})
        .unwrap_err();
    assert!(
        matches!(refused, TableError::IndexedTooLong { .. }),
        "{refused}"
    );
    let bare: Records<Bare> = engine.alter_records("items", &long, |_| {}).unwrap();
    session
        .records(&bare)
        .update(1_u64, |item| item.text.clear())
        .unwrap();
    let records: Records<Item> = engine.alter_records("items", &item(0, 0), |_| {}).unwrap();
    let counted = session.records(&records).count_prefix("text", "");
    assert_eq!(counted, Ok(1));
}

#[test]
fn ranges_by_other_indexes_and_of_other_kinds_are_refused() {
    let engine = settings().build().unwrap();
    let (records, _) = filled(&engine, 3);
    let mut session = engine.session().unwrap();
    let mut items = session.records(&records);
    let unordered = items.count_range("is", ..).unwrap_err();
    assert!(
        unordered.to_string().contains("ordered_index"),
        "{unordered}"
    );
    assert!(matches!(
        items.count_range("none", ..),
        Err(Error::IndexMissing { .. })
    ));
    assert_eq!(items.count_range("number", "a".."b"), Err(Error::KeyShape));
    assert_eq!(
        items.count_range("number", (1_u64, 2_u64)..),
        Err(Error::KeyShape)
    );
    let backwards = (Bound::Included(9_u64), Bound::Excluded(3));
    assert_eq!(items.count_range("number", backwards), Ok(0));
    let lists = engine.open_records_with("items").unwrap();
    let mut lists = session.records(&lists);
    assert_eq!(lists.count_range("signed_text", [Value::I64(-9)]..), Ok(3));
    let counted = lists.count_prefix("signed_text", [Value::I64(9), Value::from("")]);
    assert_eq!(counted, Ok(0));
}
