//! The order of bytes is that of values, and what begins the same is a range.

use super::*;
use crate::table::record::shape::RecordSchema;
use crate::table::{Timestamp, Value, write_wanted};

/// A few numbers, one after the other.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn text(random: &mut Random) -> Vec<u8> {
    let length = random.next() % 5;
    let bytes = [0, 0, 1, 97, 254, 255, 255, 98];
    (0..length)
        .map(|_| bytes[(random.next() >> 9) as usize % bytes.len()])
        .collect()
}

fn number(random: &mut Random) -> u64 {
    let corners = [
        0,
        1,
        2,
        255,
        256,
        SIGN - 1,
        SIGN,
        SIGN + 1,
        u64::MAX - 1,
        u64::MAX,
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        1.5_f64.to_bits(),
        (-1.5_f64).to_bits(),
        f64::NAN.to_bits(),
    ];
    match random.next() % 3 {
        0 => random.next(),
        _ => corners[(random.next() >> 9) as usize % corners.len()],
    }
}

const KINDS: [FieldKind; 6] = [
    FieldKind::U64,
    FieldKind::I64,
    FieldKind::F64,
    FieldKind::Bool,
    FieldKind::Timestamp,
    FieldKind::Bytes,
];

fn value(kind: FieldKind, random: &mut Random) -> Value {
    match kind {
        FieldKind::U64 => Value::U64(number(random)),
        FieldKind::I64 => Value::I64(number(random).cast_signed()),
        FieldKind::F64 => Value::F64(f64::from_bits(number(random))),
        FieldKind::Bool => Value::Bool(random.next() & 256 == 0),
        FieldKind::Timestamp => Value::Timestamp(Timestamp {
            micros: number(random).cast_signed(),
        }),
        FieldKind::Text => Value::Text(String::from_utf8_lossy(&text(random)).into_owned()),
        FieldKind::Bytes => Value::Bytes(text(random)),
    }
}

fn compare(one: &Value, other: &Value) -> std::cmp::Ordering {
    match (one, other) {
        (Value::Nothing, Value::Nothing) => std::cmp::Ordering::Equal,
        (Value::Nothing, _) => std::cmp::Ordering::Less,
        (_, Value::Nothing) => std::cmp::Ordering::Greater,
        (Value::U64(one), Value::U64(other)) => one.cmp(other),
        (Value::I64(one), Value::I64(other)) => one.cmp(other),
        (Value::F64(one), Value::F64(other)) => one.total_cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Timestamp(one), Value::Timestamp(other)) => one.micros.cmp(&other.micros),
        (Value::Text(one), Value::Text(other)) => one.cmp(other),
        (Value::Bytes(one), Value::Bytes(other)) => one.cmp(other),
        _ => panic!("values of two kinds"),
    }
}

fn compare_all(one: &[Value], other: &[Value]) -> std::cmp::Ordering {
    one.iter()
        .zip(other)
        .map(|(one, other)| compare(one, other))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

/// A random shape of one to four fields, and rows of it.
fn shape(random: &mut Random) -> (Shape, Vec<(FieldKind, bool)>) {
    let count = 1 + random.next() as usize % 4;
    let fields: Vec<(FieldKind, bool)> = (0..count)
        .map(|_| {
            let kind = KINDS[(random.next() >> 7) as usize % KINDS.len()];
            (kind, random.next() & 64 == 0)
        })
        .collect();
    let mut schema = RecordSchema::new();
    let names: Vec<String> = (0..count).map(|at| format!("field {at}")).collect();
    for (name, &(kind, is_optional)) in names.iter().zip(&fields) {
        schema = if is_optional {
            schema.optional(name, kind)
        } else {
            schema.field(name, kind)
        };
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let schema = schema.key(&names[..1]).ordered_index("all", &names);
    (Shape::new(&schema), fields)
}

fn row(fields: &[(FieldKind, bool)], random: &mut Random) -> Vec<Value> {
    fields
        .iter()
        .map(|&(kind, is_optional)| {
            if is_optional && random.next() & 768 == 0 {
                Value::Nothing
            } else {
                value(kind, random)
            }
        })
        .collect()
}

fn key(shape: &Shape, row: &[Value]) -> Vec<u8> {
    let (mut words, mut key) = (Vec::new(), Vec::new());
    write_wanted(shape, &shape.indexes[0], &row, &mut words).unwrap();
    let (image, _) = Image::split(&words).unwrap();
    write_values(&shape.indexes[0], &image, &mut key);
    key
}

#[test]
fn order_of_bytes_is_that_of_values() {
    let mut random = Random(0x0a5c_11e5);
    for _ in 0..400 {
        let (shape, fields) = shape(&mut random);
        for _ in 0..50 {
            let (one, other) = (row(&fields, &mut random), row(&fields, &mut random));
            let order = key(&shape, &one).cmp(&key(&shape, &other));
            assert_eq!(order, compare_all(&one, &other), "{one:?} and {other:?}");
            assert_eq!(slot_of(&[1, 0, 0, 1, 2]), Some(258));
        }
    }
}

#[test]
fn ranges_of_bytes_are_ranges_of_values() {
    let mut random = Random(77_411);
    for _ in 0..400 {
        let (shape, fields) = shape(&mut random);
        let count = random.next() as usize % (fields.len() + 1);
        let low = row(&fields, &mut random)[..count].to_vec();
        let high = row(&fields, &mut random)[..count].to_vec();
        let bounds = match random.next() % 3 {
            0 => (Bound::Included(low.clone()), Bound::Included(high.clone())),
            1 => (Bound::Excluded(low.clone()), Bound::Excluded(high.clone())),
            _ => (Bound::Unbounded, Bound::Included(high.clone())),
        };
        let slices = (
            bounds.0.as_ref().map(Vec::as_slice),
            bounds.1.as_ref().map(Vec::as_slice),
        );
        let span = KeySpan::of(&shape, 0, &slices).unwrap();
        for _ in 0..50 {
            let row = row(&fields, &mut random);
            let is_above = match &bounds.0 {
                Bound::Included(low) => compare_all(&row, low).is_ge(),
                Bound::Excluded(low) => compare_all(&row, low).is_gt(),
                Bound::Unbounded => true,
            };
            let is_below = match &bounds.1 {
                Bound::Included(high) => compare_all(&row, high).is_le(),
                Bound::Excluded(high) => compare_all(&row, high).is_lt(),
                Bound::Unbounded => true,
            };
            let mut key = key(&shape, &row);
            key.extend_from_slice(&[random.next() as u8; 4]);
            let is_found = key >= span.start && span.end.as_ref().is_none_or(|end| key < *end);
            assert_eq!(is_found, is_above && is_below, "{row:?} in {bounds:?}");
        }
    }
}

#[test]
fn beginnings_of_texts_are_ranges() {
    let mut random = Random(5);
    let schema = RecordSchema::new()
        .field("number", FieldKind::U64)
        .optional("bytes", FieldKind::Bytes)
        .key(&["number"])
        .ordered_index("both", &["number", "bytes"]);
    let shape = Shape::new(&schema);
    for _ in 0..20_000 {
        let (number, wanted) = (random.next() >> 62, text(&mut random));
        let span = KeySpan::beginning(&shape, 0, &(number, wanted.as_slice())).unwrap();
        let other = (random.next() >> 62, text(&mut random));
        let row = [Value::U64(other.0), Value::Bytes(other.1.clone())];
        let mut key = key(&shape, &row);
        key.extend_from_slice(&[random.next() as u8; 4]);
        let is_found = key >= span.start && span.end.as_ref().is_none_or(|end| key < *end);
        let begins = other.0 == number && other.1.starts_with(&wanted);
        assert_eq!(is_found, begins, "{other:?} and {wanted:?}");
    }
}
