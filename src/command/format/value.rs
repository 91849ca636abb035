//! Values as text and back, bit by bit.
//!
//! Integers and timestamps (microseconds since 1970-01-01 00:00 UTC) are decimal numbers, of up to 64
//! bits: a program that reads JSON numbers as doubles loses the last digits above 2^53. Floating-point
//! numbers are the shortest decimal that reads back as the same bits; those that are no numbers are
//! `NaN`, `inf`, `-inf`, or `NaN:` and 16 hexadecimal digits, in JSON as strings. Bytes are Base64
//! (RFC 4648, padded).

use ancile::{Field, FieldKind, Timestamp, Value};
use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The bits of `f64::NAN` on every machine.
const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;

/// The value of a cell of a row.
pub(crate) fn value_of(kind: FieldKind, cell: u64) -> Value {
    match kind {
        FieldKind::I64 => Value::I64(cell.cast_signed()),
        FieldKind::F64 => Value::F64(f64::from_bits(cell)),
        FieldKind::Timestamp => Value::Timestamp(Timestamp {
            micros: cell.cast_signed(),
        }),
        _ => Value::U64(cell),
    }
}

/// The cell of a value of a row.
pub(crate) fn cell_of(value: &Value) -> Result<u64> {
    Ok(match value {
        Value::U64(number) => *number,
        Value::I64(number) => number.cast_unsigned(),
        Value::F64(number) => number.to_bits(),
        Value::Timestamp(moment) => moment.micros.cast_unsigned(),
        other => bail!("{other:?} does not fit a column"),
    })
}

/// A floating-point number that JSON has no number for, as text.
pub(super) fn odd_float(number: f64) -> Option<String> {
    if number.is_finite() {
        return None;
    }
    Some(match number.to_bits() {
        NAN_BITS => "NaN".to_owned(),
        bits if number.is_nan() => format!("NaN:{bits:016x}"),
        _ => number.to_string(),
    })
}

/// The bytes of a value, as text that is no JSON string.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The value of a field that text says, which is not that of nothing.
pub(super) fn parse(field: &Field, text: &str) -> Result<Value> {
    let wanted = || format!("field {:?} cannot be {text:?}", field.name);
    Ok(match field.kind {
        FieldKind::U64 => Value::U64(text.parse().with_context(wanted)?),
        FieldKind::I64 => Value::I64(text.parse().with_context(wanted)?),
        FieldKind::F64 => Value::F64(parse_float(text).with_context(wanted)?),
        FieldKind::Bool => Value::Bool(text.parse().with_context(wanted)?),
        FieldKind::Timestamp => Value::Timestamp(Timestamp {
            micros: text.parse().with_context(wanted)?,
        }),
        FieldKind::Text => Value::Text(text.to_owned()),
        FieldKind::Bytes => {
            let wanted = || format!("field {:?} is no Base64", field.name);
            Value::Bytes(STANDARD.decode(text).with_context(wanted)?)
        }
        other => bail!("field {:?} is of unknown kind {other:?}", field.name),
    })
}

fn parse_float(text: &str) -> Result<f64> {
    match text.strip_prefix("NaN:") {
        Some(bits) => Ok(f64::from_bits(u64::from_str_radix(bits, 16)?)),
        None if text == "NaN" => Ok(f64::from_bits(NAN_BITS)),
        None => Ok(text.parse()?),
    }
}
