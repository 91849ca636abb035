//! Dumps of one JSON object a line.
//!
//! ```text
//! {"table":"people","schema":{"records":{"fields":[...],"key":["name"],"indexes":[...]}}}
//! {"table":"people","row":{"name":"Ada","born":1815}}
//! {"table":"accounts","schema":{"rows":{"keyed":true,"columns":[...]}}}
//! {"table":"accounts","key":7,"row":{"owner":1,"balance":-250}}
//! {"end":{"rows":{"accounts":1,"people":1},"checksum":"0f84d2a6c3b1e975"}}
//! ```
//! A table's schema comes before its rows. A field that holds nothing is `null`, or left out.

use std::io::Write;

use ancile::{Field, FieldKind, GlobalKey, Value};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::value::{odd_float, parse, to_base64};
use super::{Extra, Layout, SchemaEntry, globals};

#[derive(Serialize)]
struct SchemaLine<'a> {
    table: &'a str,
    schema: SchemaEntry,
}

/// Writes the line of a table.
pub(crate) fn write_schema(out: &mut impl Write, layout: &Layout) -> Result<()> {
    let line = SchemaLine {
        table: &layout.table,
        schema: layout.schema_json(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    Ok(out.write_all(b"\n")?)
}

/// Writes the line of a row.
pub(crate) fn write_row(
    out: &mut impl Write,
    layout: &Layout,
    extra: Extra,
    values: &[Value],
) -> Result<()> {
    out.write_all(b"{\"table\":")?;
    serde_json::to_writer(&mut *out, &layout.table)?;
    match extra {
        Extra::Nothing => {}
        Extra::Key(key) => write!(out, ",\"key\":{key}")?,
        Extra::Id(id) => write!(out, ",\"id\":{id}")?,
    }
    let mut opening: &[u8] = b",\"row\":{";
    for (field, value) in layout.fields.iter().zip(values) {
        out.write_all(opening)?;
        opening = b",";
        serde_json::to_writer(&mut *out, &field.name)?;
        out.write_all(b":")?;
        write_value(out, value)?;
    }
    Ok(out.write_all(b"}}\n")?)
}

fn write_value(out: &mut impl Write, value: &Value) -> Result<()> {
    match value {
        Value::Nothing => out.write_all(b"null")?,
        Value::U64(number) => write!(out, "{number}")?,
        Value::I64(number) => write!(out, "{number}")?,
        Value::F64(number) => match odd_float(*number) {
            None => serde_json::to_writer(out, number)?,
            Some(odd) => write!(out, "\"{odd}\"")?,
        },
        Value::Bool(is_so) => write!(out, "{is_so}")?,
        Value::Timestamp(moment) => write!(out, "{}", moment.micros)?,
        Value::Text(text) => serde_json::to_writer(out, text)?,
        Value::Bytes(bytes) => write!(out, "\"{}\"", to_base64(bytes))?,
    }
    Ok(())
}

/// A line of a dump.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) table: String,
    #[serde(default)]
    pub(crate) schema: Option<SchemaEntry>,
    #[serde(default)]
    pub(crate) key: Option<u64>,
    /// Told for people.
    #[serde(default, rename = "id")]
    _id: Option<u64>,
    #[serde(default)]
    row: Option<Map<String, Json>>,
    /// The key of a node of globals: its name and subscripts.
    #[serde(default)]
    global: Option<Vec<Json>>,
    #[serde(default)]
    value: Option<Json>,
}

impl Line {
    pub(crate) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("this is no line of a dump")
    }

    /// The key and the value of the line's node.
    pub(crate) fn node(&self) -> Result<(GlobalKey, Vec<u8>)> {
        let (Some(parts), Some(value)) = (&self.global, &self.value) else {
            bail!("this line has neither \"schema\" nor \"global\" and \"value\"");
        };
        if self.row.is_some() || self.key.is_some() {
            bail!("globals have neither \"row\" nor \"key\"");
        }
        let value = globals::read_bytes(value).context("the value")?;
        Ok((globals::read_key(parts)?, value.into_owned()))
    }

    /// The values of the line's row.
    pub(crate) fn values(&self, layout: &Layout) -> Result<Vec<Value>> {
        let Some(row) = &self.row else {
            bail!("this line has neither \"schema\" nor \"row\"");
        };
        if self.global.is_some() || self.value.is_some() {
            bail!("rows have neither \"global\" nor \"value\"");
        }
        let mut values: Vec<Option<Value>> = vec![None; layout.fields.len()];
        for (name, json) in row {
            let number = layout.field(name)?;
            values[number] = Some(value(&layout.fields[number], json)?);
        }
        let fields = layout.fields.iter().zip(values);
        fields
            .map(|(field, value)| match value {
                Some(value) => Ok(value),
                None if field.optional => Ok(Value::Nothing),
                None => bail!("field {:?} is missing", field.name),
            })
            .collect()
    }
}

fn value(field: &Field, json: &Json) -> Result<Value> {
    match (field.kind, json) {
        (_, Json::Null) if field.optional => Ok(Value::Nothing),
        (FieldKind::Text | FieldKind::Bytes | FieldKind::F64, Json::String(text)) => {
            parse(field, text)
        }
        (FieldKind::Bool, Json::Bool(is_so)) => Ok(Value::Bool(*is_so)),
        (FieldKind::F64, Json::Number(number)) => match number.as_f64() {
            Some(number) => Ok(Value::F64(number)),
            None => bail!("field {:?} cannot be {number}", field.name),
        },
        (FieldKind::U64 | FieldKind::I64 | FieldKind::Timestamp, Json::Number(number)) => {
            parse(field, &number.to_string())
        }
        _ => bail!(
            "field {:?} is of kind {:?}, and cannot be {json}",
            field.name,
            field.kind
        ),
    }
}
