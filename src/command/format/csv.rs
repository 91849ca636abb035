//! Dumps of comma-separated values (RFC 4180), of one table.
//!
//! ```text
//! #{"table":"people","schema":{"records":{...}}}
//! name,born,note
//! Ada,1815,""
//! Charles,,
//! ```
//! The first line, which begins with `#{`, is the table's schema, as in the other format; the second
//! names the columns. A field that holds nothing is empty; a text of no letters is `""`. A keyed table's
//! rows begin with `@key`, those of a table without keys with `@id`, which is told and not loaded.

use std::io::{BufRead, Write};

use ancile::{Field, FieldKind, TableSchema, Value};
use anyhow::{Context, Result, bail};

use super::value::{odd_float, parse, to_base64};
use super::{Extra, Layout, jsonl};

const KEY: &str = "@key";
const ID: &str = "@id";

/// Writes the lines before the rows.
pub(crate) fn write_head(out: &mut impl Write, layout: &Layout, with_schema: bool) -> Result<()> {
    if with_schema {
        out.write_all(b"#")?;
        jsonl::write_schema(out, layout)?;
    }
    let extra = match layout.schema {
        TableSchema::Rows(_) if layout.is_keyed() => Some(KEY),
        TableSchema::Rows(_) => Some(ID),
        _ => None,
    };
    let names = layout.fields.iter().map(|field| &*field.name);
    for (at, name) in extra.into_iter().chain(names).enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        write_text(out, name)?;
    }
    Ok(out.write_all(b"\n")?)
}

/// Writes the line of a row.
pub(crate) fn write_row(out: &mut impl Write, extra: Extra, values: &[Value]) -> Result<()> {
    let mut is_first = true;
    match extra {
        Extra::Nothing => {}
        Extra::Key(number) | Extra::Id(number) => {
            write!(out, "{number}")?;
            is_first = false;
        }
    }
    for value in values {
        if !is_first {
            out.write_all(b",")?;
        }
        is_first = false;
        write_value(out, value)?;
    }
    Ok(out.write_all(b"\n")?)
}

fn write_value(out: &mut impl Write, value: &Value) -> Result<()> {
    match value {
        Value::Nothing => {}
        Value::U64(number) => write!(out, "{number}")?,
        Value::I64(number) => write!(out, "{number}")?,
        Value::F64(number) => match odd_float(*number) {
            None => serde_json::to_writer(out, number)?,
            Some(odd) => write!(out, "{odd}")?,
        },
        Value::Bool(is_so) => write!(out, "{is_so}")?,
        Value::Timestamp(moment) => write!(out, "{}", moment.micros)?,
        Value::Text(text) => write_text(out, text)?,
        Value::Bytes(bytes) => write_text(out, &to_base64(bytes))?,
    }
    Ok(())
}

fn write_text(out: &mut impl Write, text: &str) -> Result<()> {
    let is_plain = !text.is_empty()
        && !text.starts_with(['#', ' ', '\t'])
        && !text.ends_with([' ', '\t'])
        && !text.contains([',', '"', '\r', '\n']);
    if is_plain {
        out.write_all(text.as_bytes())?;
    } else {
        write!(out, "\"{}\"", text.replace('"', "\"\""))?;
    }
    Ok(())
}

/// A cell of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    is_quoted: bool,
}

/// Reads lines, which may go over several of the file's.
pub(crate) struct Reader<R> {
    input: R,
    /// Lines of the file that were read.
    lines: u64,
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, lines: 0 }
    }

    /// The number of the line of the file that was read last.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// The next line of the file, with its end; none at the end of the file.
    pub(crate) fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        self.lines += 1;
        match self.input.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(line)),
        }
    }

    /// The cells of the line that begins so.
    pub(crate) fn cells(&mut self, first: &str) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let mut line = Cursor {
            line: first.to_owned(),
            at: 0,
        };
        loop {
            cells.push(if line.rest().starts_with('"') {
                line.at += 1;
                self.quoted(&mut line)?
            } else {
                line.bare()?
            });
            if !line.rest().starts_with(',') {
                return Ok(cells);
            }
            line.at += 1;
        }
    }

    /// A cell behind its quotation mark, which ends where another one does.
    fn quoted(&mut self, line: &mut Cursor) -> Result<Cell> {
        let mut text = String::new();
        loop {
            let Some(end) = line.rest().find('"') else {
                text.push_str(line.rest());
                line.line = self
                    .line()?
                    .context("a quotation mark is not closed before the end of the file")?;
                line.at = 0;
                continue;
            };
            text.push_str(&line.rest()[..end]);
            line.at += end + 1;
            if line.rest().starts_with('"') {
                text.push('"');
                line.at += 1;
                continue;
            }
            if !matches!(line.rest(), "" | "\n" | "\r\n") && !line.rest().starts_with(',') {
                bail!("something stands between a closing quotation mark and the next comma");
            }
            return Ok(Cell {
                text,
                is_quoted: true,
            });
        }
    }
}

/// A line, and how far it was read.
struct Cursor {
    line: String,
    at: usize,
}

impl Cursor {
    fn rest(&self) -> &str {
        &self.line[self.at..]
    }

    /// A cell without quotation marks.
    fn bare(&mut self) -> Result<Cell> {
        let rest = self.rest();
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(end);
        let text = if behind.starts_with(',') {
            text
        } else {
            text.trim_end_matches('\r')
        };
        if text.contains('"') {
            bail!("a quotation mark stands within a value that has none around it");
        }
        let text = text.to_owned();
        self.at += end;
        Ok(Cell {
            text,
            is_quoted: false,
        })
    }
}

/// Which fields the columns of a file are.
pub(crate) struct Columns(Vec<Column>);

enum Column {
    Key,
    /// Told for people.
    Id,
    Field(usize),
}

impl Columns {
    pub(crate) fn new(layout: &Layout, names: &[Cell]) -> Result<Self> {
        let mut columns = Vec::new();
        let mut seen = Vec::new();
        let extra = match layout.schema {
            TableSchema::Rows(_) if layout.is_keyed() => Some((KEY, Column::Key)),
            TableSchema::Rows(_) => Some((ID, Column::Id)),
            _ => None,
        };
        let mut names = names.iter();
        // What comes first and is named so is no column of the table's, even if it has one of that name.
        if let Some((name, column)) = extra
            && names
                .as_slice()
                .first()
                .is_some_and(|first| first.text == name)
        {
            names.next();
            columns.push(column);
        }
        for name in names {
            if seen.contains(&&name.text) {
                bail!("column {:?} is there twice", name.text);
            }
            seen.push(&name.text);
            columns.push(Column::Field(layout.field(&name.text)?));
        }
        if layout.is_keyed() && !columns.iter().any(|column| matches!(column, Column::Key)) {
            bail!(
                "the first column is not {KEY}: table {:?} is keyed",
                layout.table
            );
        }
        Ok(Self(columns))
    }

    /// The key and the values of a line.
    pub(crate) fn row(&self, layout: &Layout, cells: &[Cell]) -> Result<(Option<u64>, Vec<Value>)> {
        if cells.len() != self.0.len() {
            bail!("{} values for {} columns", cells.len(), self.0.len());
        }
        let mut key = None;
        let mut values: Vec<Option<Value>> = vec![None; layout.fields.len()];
        for (column, cell) in self.0.iter().zip(cells) {
            match column {
                Column::Id => {}
                Column::Key => {
                    let wrong = || format!("{KEY} cannot be {:?}", cell.text);
                    key = Some(cell.text.parse().with_context(wrong)?);
                }
                Column::Field(number) => {
                    values[*number] = Some(value(&layout.fields[*number], cell)?);
                }
            }
        }
        let fields = layout.fields.iter().zip(values);
        let values = fields.map(|(field, value)| match value {
            Some(value) => Ok(value),
            None if field.optional => Ok(Value::Nothing),
            None => bail!("there is no column {:?}, which is not optional", field.name),
        });
        Ok((key, values.collect::<Result<_>>()?))
    }
}

fn value(field: &Field, cell: &Cell) -> Result<Value> {
    let is_empty = cell.text.is_empty() && !cell.is_quoted;
    match field.kind {
        _ if is_empty && field.optional => Ok(Value::Nothing),
        FieldKind::Text | FieldKind::Bytes => parse(field, &cell.text),
        _ if is_empty => bail!("field {:?} is empty, and not optional", field.name),
        _ => parse(field, &cell.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Vec<(String, bool)>>> {
        let mut reader = Reader::new(text.as_bytes());
        let mut lines = Vec::new();
        while let Some(first) = reader.line()? {
            let cells = reader.cells(&first)?.into_iter();
            lines.push(cells.map(|cell| (cell.text, cell.is_quoted)).collect());
        }
        Ok(lines)
    }

    #[test]
    fn texts_of_all_letters_are_read_as_they_were_written() {
        let texts = [
            "",
            "a",
            " a",
            "a ",
            "#a",
            ",",
            "\"",
            "\"\"",
            "a\nb",
            "a\r\n",
            "\r",
            "ü,\"x\"\n\n,",
            "\t",
        ];
        for one in texts {
            for other in texts {
                let mut out = Vec::new();
                let values = [one, other].map(Value::from);
                write_row(&mut out, Extra::Nothing, &values).unwrap();
                write_row(&mut out, Extra::Key(7), &[Value::Nothing]).unwrap();
                let lines = read(std::str::from_utf8(&out).unwrap()).unwrap();
                let texts: Vec<&str> = lines[0].iter().map(|(text, _)| &**text).collect();
                assert_eq!(texts, [one, other]);
                let key = ("7".to_owned(), false);
                assert_eq!(lines[1], [key, (String::new(), false)]);
                assert_eq!(lines.len(), 2);
            }
        }
    }

    #[test]
    fn quotation_marks_out_of_place_are_refused() {
        for text in ["\"a", "\"a\"b", "a\"b", "\"a\" ,", "x,\"", "\"\"\"\n"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("a,b\r\n\"\"\r\n").unwrap()[1], [(String::new(), true)]);
    }
}
