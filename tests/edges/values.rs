//! Records as lists of values: every kind there and back, what does not fit refused by name.

use std::ops::ControlFlow;

use ancile::{Error, Field, FieldKind, RecordSchema, TableError, Timestamp, Value, Verbs};

use super::database::{Place, settings};

const KINDS: [FieldKind; 7] = [
    FieldKind::U64,
    FieldKind::I64,
    FieldKind::F64,
    FieldKind::Bool,
    FieldKind::Timestamp,
    FieldKind::Text,
    FieldKind::Bytes,
];

/// A field of each kind, and an optional one of each.
fn every_kind() -> RecordSchema {
    let schema = RecordSchema::new().field("number", FieldKind::U64);
    let schema = KINDS.iter().fold(schema, |schema, &kind| {
        schema
            .field(&format!("{kind:?}"), kind)
            .optional(&format!("{kind:?}?"), kind)
    });
    schema
        .key(&["number"])
        .hash_index("texts", &["Text", "Text?"])
}

/// Values of a kind, its extremes among them.
fn values(kind: FieldKind) -> Vec<Value> {
    let micros = |micros| Value::Timestamp(Timestamp { micros });
    let lengths = [0, 1, 15, 16, 17, 300, 70_000];
    match kind {
        FieldKind::U64 => [0, 1, 1 << 53, u64::MAX].map(Value::U64).into(),
        FieldKind::I64 => [0, -1, i64::MIN, i64::MAX].map(Value::I64).into(),
        FieldKind::F64 => [0.0, -0.0, 1e-310, -1.5, f64::MAX, f64::INFINITY]
            .map(Value::F64)
            .into(),
        FieldKind::Bool => [true, false].map(Value::Bool).into(),
        FieldKind::Timestamp => [0, i64::MIN, i64::MAX].map(micros).into(),
        FieldKind::Text => lengths
            .map(|length| Value::Text("ß".repeat(length / 2)))
            .into(),
        FieldKind::Bytes => lengths
            .map(|length| Value::Bytes(vec![0xff; length]))
            .into(),
        other => panic!("{other:?} is not tried"),
    }
}

/// A record with other values for every number.
fn record(number: u64) -> Vec<Value> {
    let mut record = vec![Value::U64(number)];
    for kind in KINDS {
        let values = values(kind);
        let at = number as usize;
        record.push(values[at % values.len()].clone());
        record.push(match at % (values.len() + 1) {
            0 => Value::Nothing,
            at => values[at - 1].clone(),
        });
    }
    record
}

#[test]
fn every_kind_of_value_is_there_after_a_close_bit_by_bit() {
    let place = Place::new("values");
    for round in 0..2 {
        let engine = settings().open(place.path()).unwrap();
        let table = match round {
            0 => engine.create_records_with("t", every_kind()).unwrap(),
            _ => engine.open_records_with("t").unwrap(),
        };
        assert_eq!(table.schema(), &every_kind());
        let mut session = engine.session().unwrap();
        let mut records = session.records(&table);
        for number in 0..100 {
            let record = record(number);
            if round == 0 {
                records.insert(&record).unwrap();
                assert_eq!(records.insert(&record), Err(Error::DuplicateKey));
            }
            let key = Value::U64(number);
            assert_eq!(records.get(&key).unwrap().as_ref(), Some(&record));
            assert_eq!(records.get(&[key][..]).unwrap().as_ref(), Some(&record));
            let texts = [record[11].clone(), record[12].clone()];
            let found = records.find("texts", &texts).unwrap();
            assert!(found.contains(&record), "{texts:?}");
        }
        let mut scanned = Vec::new();
        records
            .scan(|record| {
                scanned.push(record);
                ControlFlow::Continue(())
            })
            .unwrap();
        scanned.sort_by_key(|record| match record[0] {
            Value::U64(number) => number,
            _ => u64::MAX,
        });
        assert!(scanned == (0..100).map(record).collect::<Vec<_>>());
        let key = vec![Value::U64(7)];
        let mut changed = record(8);
        changed[0] = Value::U64(7);
        assert!(records.replace(&changed).unwrap());
        assert_eq!(records.get(&key).unwrap(), Some(changed));
        let changes = |old: &mut Vec<Value>| *old = record(7);
        assert!(records.update(&key, changes).unwrap());
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn not_a_number_keeps_its_bits() {
    let engine = settings().build().unwrap();
    let schema = RecordSchema::new().field("f", FieldKind::F64).key(&["f"]);
    let table = engine.create_records_with("t", schema).unwrap();
    let mut session = engine.session().unwrap();
    let mut records = session.records(&table);
    let odd = Value::F64(f64::from_bits(0xfff4_0000_0000_0123));
    records.insert(&vec![odd.clone()]).unwrap();
    let found = records.get(&odd).unwrap().unwrap();
    assert!(matches!(found[0], Value::F64(f) if f.to_bits() == 0xfff4_0000_0000_0123));
}

#[test]
fn every_wrong_kind_is_refused_with_the_field_and_both_kinds() {
    let engine = settings().build().unwrap();
    let table = engine.create_records_with("t", every_kind()).unwrap();
    let fields: Vec<Field> = table.schema().fields().to_vec();
    let mut session = engine.session().unwrap();
    let mut records = session.records(&table);
    let mut refused = 0;
    for (at, field) in fields.iter().enumerate() {
        let wrong = KINDS.iter().filter(|&&kind| kind != field.kind);
        let wrong = wrong.map(|&kind| values(kind)[0].clone());
        let nothing = (!field.optional).then_some(Value::Nothing);
        for value in wrong.chain(nothing) {
            let mut record = record(1);
            record[at] = value;
            let error = records.insert(&record).unwrap_err();
            let Error::FieldValue {
                field: named,
                holds,
                given,
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!(named, &field.name);
            assert_ne!(holds, given);
            assert!(
                error
                    .to_string()
                    .contains(&format!("{named:?} holds {holds}"))
            );
            refused += 1;
        }
    }
    assert_eq!(refused, 15 * 6 + 8);
    for length in [0, 14, 16] {
        let mut record = record(1);
        record.resize(length, Value::Nothing);
        let counts = Error::FieldCount {
            given: length,
            fields: 15,
        };
        assert_eq!(records.insert(&record), Err(counts));
    }
    assert!(matches!(
        records.get(Value::I64(1)),
        Err(Error::FieldValue { .. })
    ));
    let none: &[Value] = &[];
    assert!(matches!(records.get(none), Err(Error::FieldCount { .. })));
    assert!(matches!(
        records.find("texts", [Value::from("one")]),
        Err(Error::FieldCount {
            given: 1,
            fields: 2
        })
    ));
    let long = Value::Text("x".repeat((16 << 20) + 1));
    let mut record = record(1);
    record[11] = long;
    assert!(matches!(
        records.insert(&record),
        Err(Error::TextTooLong { .. })
    ));
    assert_eq!(records.count().unwrap(), 0);
}

#[test]
fn schemas_that_cannot_be_are_refused() {
    let engine = settings().build().unwrap();
    let new = RecordSchema::new;
    let one = || new().field("a", FieldKind::U64);
    let create = |schema: RecordSchema| engine.create_records_with("t", schema).err();
    assert_eq!(create(one()), Some(TableError::NoKey));
    assert_eq!(create(new()), Some(TableError::Columns(0)));
    assert_eq!(
        create(one().key(&["b"])),
        Some(TableError::FieldMissing("b".to_owned()))
    );
    assert_eq!(
        create(one().key(&["a"]).hash_index("i", &["a", "c"])),
        Some(TableError::FieldMissing("c".to_owned()))
    );
    assert_eq!(
        create(one().field("a", FieldKind::Text).key(&["a"])),
        Some(TableError::ColumnTwice("a".to_owned()))
    );
    let index = one().key(&["a"]).hash_index("i", &["a"]);
    assert_eq!(
        create(index.hash_index("i", &["a"])),
        Some(TableError::ColumnTwice("i".to_owned()))
    );
    assert!(matches!(
        create(one().key(&["a"]).hash_index("i", &[])),
        Some(TableError::FieldMissing(_))
    ));
    assert!(matches!(
        create(new().field("", FieldKind::U64).key(&[""])),
        Some(TableError::Name(_))
    ));
    let wide = (0..600).fold(new(), |schema, at| {
        schema.field(&at.to_string(), FieldKind::Text)
    });
    assert_eq!(create(wide.key(&["0"])), Some(TableError::Columns(1200)));
    let indexes = (0..65).fold(one().key(&["a"]), |schema, at| {
        schema.hash_index(&at.to_string(), &["a"])
    });
    assert_eq!(create(indexes), Some(TableError::Indexes(65)));
    // Nothing of all that is left.
    assert_eq!(create(one().key(&["a"])), None);
    assert_eq!(
        create(one().key(&["a"])),
        Some(TableError::Exists("t".to_owned()))
    );
    assert!(matches!(
        engine.open_records_with("u"),
        Err(TableError::Missing(_))
    ));
    engine
        .create_table::<[u64; 1]>("rows", ancile::Schema::cells(1))
        .unwrap();
    assert!(matches!(
        engine.open_records_with("rows"),
        Err(TableError::Shape { .. })
    ));
}
