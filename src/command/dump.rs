//! `ancile dump`: all rows of a database, as text.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use ancile::{Engine, GlobalKeyRef, KeyRange, Session, TableSchema, Value, Verbs};
use anyhow::{Context, Result, bail};
use clap::Args;

use super::format::{Extra, Format, Layout, csv, end::Tally, globals, jsonl, value_of};
use super::progress::Progress;
use super::{Done, open_for_reading};

const LONG: &str = "\
Writes all rows of a database, or of some of its tables, as text that `ancile load` reads. The database \
is opened for reading only, and nobody may have it open for changes meanwhile.

Formats:
  jsonl  One JSON object a line. A table begins with its schema, {\"table\": NAME, \"schema\": {..}}; \
each row is {\"table\": NAME, \"row\": {FIELD: VALUE, ..}}, with \"key\" before \"row\" in keyed tables, and \
\"id\" (where it lay: told, and not loaded) in tables of rows without keys. Each node of globals is \
{\"table\": NAME, \"global\": [NAME, SUBSCRIPT, ..], \"value\": VALUE}, in their order. \
The last line is the end mark, {\"end\": {\"rows\": {NAME: COUNT, ..}, \"checksum\": CHECKSUM}}: the rows of \
each table, and the CRC-64/NVME of all lines before it, in 16 hexadecimal digits. `ancile load` tells by it \
a dump that was cut off.
  csv    RFC 4180, one table, which cannot be one of globals. The first line, which begins with #{, is the schema, as in jsonl; the \
second names the columns, among them @key or @id. A field that holds nothing is empty; a text of no \
letters is \"\".

Schemas:
  {\"records\": {\"fields\": [{\"name\": NAME, \"kind\": KIND, \"optional\": BOOL}, ..], \"key\": [FIELD, ..], \
\"indexes\": [{\"name\": NAME, \"kind\": \"hash\", \"unique\" or \"ordered\", \"fields\": [FIELD, ..]}, ..]}}
  {\"rows\": {\"keyed\": BOOL, \"columns\": [{\"name\": NAME, \"kind\": KIND}, ..]}}
  {\"globals\": {\"routing\": \"name_and_first\", \"full_key\" or {\"prefix\": SUBSCRIPTS}}}
Kinds are u64, i64, f64, timestamp, and, of records only, bool, text, bytes.

Values: integers and timestamps (microseconds since 1970-01-01 00:00 UTC) are decimal numbers of up to \
64 bits (beyond 2^53 they are exact here, and rounded by programs that read JSON numbers as doubles); \
floating-point numbers are the shortest decimal with the same bits, or NaN, inf, -inf (strings in \
JSON); bytes are Base64; nothing is null.

Globals: names, subscripts and values are strings, or, if they are no UTF-8, {\"base64\": STRING}. \
Subscripts that are integers of up to 64 bits are numbers, and other numbers strings in canonical form \
(\"-.5\"): as a subscript, a string that looks like a canonical number is that number.

Exit codes: 0 done, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Only this table; may be given more than once
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// How to write
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Write to this file, which must not exist, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out the schema in front of comma-separated values
    #[arg(long)]
    no_schema: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let engine = open_for_reading(&arguments.path)?;
    let layouts = Layout::of_engine(&engine, &arguments.table)?;
    if arguments.format == Format::Csv && layouts.len() != 1 {
        let names: Vec<&str> = layouts.iter().map(|layout| &*layout.table).collect();
        bail!(
            "comma-separated values have one table: choose one with --table of {}",
            names.join(", ")
        );
    }
    if arguments.format == Format::Csv && layouts.iter().any(Layout::is_globals) {
        bail!("globals have no columns: dump them with --format jsonl");
    }
    let mut sink = Sink::new(arguments.output.as_ref(), arguments.format)?;
    sink.with_schema = !arguments.no_schema;
    let result = write_all(&engine, &layouts, &mut sink);
    finish(result, sink)?;
    Ok(Done::Good)
}

/// Ends a dump; a reader who has seen enough is no fault.
pub(super) fn finish(result: Result<()>, mut sink: Sink) -> Result<()> {
    let result = result.and_then(|()| sink.end());
    match result {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other.context("the dump could not be written"),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |kind: Option<ErrorKind>| kind == Some(ErrorKind::BrokenPipe);
    error.chain().any(|cause| {
        is_broken(cause.downcast_ref::<io::Error>().map(io::Error::kind))
            || is_broken(
                cause
                    .downcast_ref::<serde_json::Error>()
                    .and_then(|e| e.io_error_kind()),
            )
    })
}

/// Where a dump goes.
pub(super) struct Sink {
    out: Box<dyn Write>,
    format: Format,
    with_schema: bool,
    tally: Tally,
    /// A line on its way.
    line: Vec<u8>,
    progress: Progress,
    pub(super) rows: u64,
}

impl Sink {
    pub(super) fn new(output: Option<&PathBuf>, format: Format) -> Result<Self> {
        let out: Box<dyn Write> = match output {
            None => Box::new(io::stdout().lock()),
            Some(path) => {
                let file = OpenOptions::new().write(true).create_new(true).open(path);
                let name = || format!("{} could not be made", path.display());
                Box::new(file.with_context(name)?)
            }
        };
        Ok(Self {
            out: Box::new(BufWriter::with_capacity(1 << 20, out)),
            format,
            with_schema: true,
            tally: Tally::new(),
            line: Vec::new(),
            progress: Progress::new("rows written"),
            rows: 0,
        })
    }

    /// Begins a table.
    pub(super) fn begin(&mut self, layout: &Layout) -> Result<()> {
        self.tally.table(&layout.table);
        match self.format {
            Format::Jsonl => jsonl::write_schema(&mut self.line, layout)?,
            Format::Csv => csv::write_head(&mut self.line, layout, self.with_schema)?,
        }
        self.write_line()
    }

    pub(super) fn row(&mut self, layout: &Layout, extra: Extra, values: &[Value]) -> Result<()> {
        match self.format {
            Format::Jsonl => jsonl::write_row(&mut self.line, layout, extra, values)?,
            Format::Csv => csv::write_row(&mut self.line, extra, values)?,
        }
        self.count(&layout.table)
    }

    /// Writes a node of globals, which only JSON lines have.
    pub(super) fn node(
        &mut self,
        layout: &Layout,
        key: GlobalKeyRef<'_>,
        value: &[u8],
    ) -> Result<()> {
        globals::write_node(&mut self.line, &layout.table, key, value)?;
        self.count(&layout.table)
    }

    fn count(&mut self, table: &str) -> Result<()> {
        self.tally.row(table);
        self.rows += 1;
        self.progress.tell(|| self.rows.to_string());
        self.write_line()
    }

    fn write_line(&mut self) -> Result<()> {
        self.tally.bytes(&self.line);
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }

    /// Says that all is written.
    fn end(&mut self) -> Result<()> {
        match self.format {
            Format::Jsonl => self.tally.write(&mut self.out)?,
            Format::Csv => {}
        }
        Ok(self.out.flush()?)
    }
}

fn write_all(engine: &Engine, layouts: &[Layout], sink: &mut Sink) -> Result<()> {
    let mut session = engine.session()?;
    for layout in layouts {
        sink.begin(layout)?;
        write_table(engine, &mut session, layout, sink)?;
    }
    Ok(())
}

/// Writes the rows of a table; an error of the sink ends the scan.
fn write_table(
    engine: &Engine,
    session: &mut Session,
    layout: &Layout,
    sink: &mut Sink,
) -> Result<()> {
    let mut failure = None;
    let mut go_on = |result: Result<()>| match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    };
    let values = |cells: Vec<u64>| -> Vec<Value> {
        let fields = layout.fields.iter().zip(cells);
        fields
            .map(|(field, cell)| value_of(field.kind, cell))
            .collect()
    };
    let scanned = match &layout.schema {
        TableSchema::Rows(_) => {
            let table = engine.open_table::<Vec<u64>>(&layout.table)?;
            if layout.is_keyed() {
                session.scan_keyed(&table, |_, key, cells| {
                    go_on(sink.row(layout, Extra::Key(key.0), &values(cells)))
                })
            } else {
                session.scan(&table, |_, id, cells| {
                    go_on(sink.row(layout, Extra::Id(id.to_u64()), &values(cells)))
                })
            }
        }
        TableSchema::Globals(_) => {
            let store = engine.open_globals(&layout.table)?;
            session
                .globals(&store)
                .scan_range(&every_key(), |key, value| {
                    go_on(sink.node(layout, key, value))
                })
        }
        _ => {
            let records = engine.open_records_with(&layout.table)?;
            session
                .records(&records)
                .scan(|values| go_on(sink.row(layout, Extra::Nothing, &values)))
        }
    };
    scanned.with_context(|| format!("table {:?} could not be read", layout.table))?;
    failure.map_or(Ok(()), Err)
}

/// Where all keys are: no encoding begins with more bytes of this kind than the longest name has.
fn every_key() -> KeyRange {
    KeyRange {
        start: Vec::new(),
        end: vec![0xff; 256],
    }
}
