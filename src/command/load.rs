//! `ancile load`: a database from a dump.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::PathBuf;

use ancile::{
    Batch, Engine, EngineBuilder, Error, GlobalKey, Globals, Outcome, Records, Session,
    SurrogateId, Table, TableSchema, Value, Verbs,
};
use anyhow::{Context, Result, bail};
use clap::Args;

use super::format::end::{self, End, Tally};
use super::format::{Format, Layout, cell_of, csv, jsonl};
use super::progress::{Progress, bytes_of};
use super::{Done, print};

/// Rows that go to the shards together, and about how many bytes of them.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;

const LONG: &str = "\
Reads a dump (see `ancile dump --help` for its formats) into a database, which is made if there is none, \
with as many shards as --shards says: this is the way to give a database another number of shards. \
Tables that are not there are made; those that are must have the schema of the dump.

A dump of JSON lines that was cut off, or is not as it was written, is refused: by its end mark, which \
counts its rows and has a checksum of its lines. A file (--from) is read once before, and nothing of it is \
loaded then. Standard input is loaded as it comes: what is loaded when its end turns out to be missing is \
told. Dumps without an end mark (of versions before it, or made by hand), and those that were changed \
since, are loaded with --unchecked. Comma-separated values have no end mark.

A row whose key exists is refused, and ends the load, unless --upsert is given; a table of rows without \
keys must be empty, unless --append is, and a set of globals, unless --upsert is. What is wrong is told \
with the number of its line. A load that fails later leaves the rows of the lines before, and maybe of \
some behind, in the database, and says how many.

Exit codes: 0 loaded, 2 cannot.";

#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Arguments {
    /// The database's directory
    path: PathBuf,
    /// Read this file instead of standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// How the dump is written; without it, csv for files that end so, and jsonl otherwise
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Shards of a new database; as many as there are processors, if nothing is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=EngineBuilder::SHARDS_MAX as i64))]
    shards: Option<u32>,
    /// Bytes that each shard may use
    #[arg(long, value_name = "N")]
    arena_bytes: Option<u64>,
    /// Replace rows whose key exists
    #[arg(long)]
    upsert: bool,
    /// Add rows to tables without keys that have some
    #[arg(long)]
    append: bool,
    /// Load also JSON lines that have no end mark, or are not those that it was made for
    #[arg(long)]
    unchecked: bool,
    /// The table of comma-separated values that do not say theirs; it must exist
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Print one JSON object with the rows of each table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Done> {
    let input = arguments.input()?;
    let mut settings = Engine::builder().pin(false);
    if let Some(shards) = arguments.shards {
        settings = settings.shards(shards as usize);
    }
    if let Some(bytes) = arguments.arena_bytes {
        settings = settings.arena_bytes(bytes);
    }
    let engine = settings.open(&arguments.path)?;
    let mut loader = Loader {
        session: engine.session()?,
        engine: &engine,
        upsert: arguments.upsert,
        append: arguments.append,
        is_checked: !arguments.unchecked,
        targets: BTreeMap::new(),
        progress: Progress::new("rows loaded"),
        rows: 0,
    };
    let loaded = match arguments.format() {
        Format::Jsonl => loader.load_jsonl(input),
        Format::Csv => loader.load_csv(input, arguments.table.as_deref()),
    };
    let report = loader.report(arguments.json);
    let loaded = loaded.map_err(|error| loader.failed(error));
    drop(loader);
    let closed = engine.close();
    loaded?;
    closed?;
    print(&report)?;
    Ok(Done::Good)
}

impl Arguments {
    fn format(&self) -> Format {
        let is_csv = |path: &PathBuf| path.extension().is_some_and(|end| end == "csv");
        match self.format {
            Some(format) => format,
            None if self.from.as_ref().is_some_and(is_csv) => Format::Csv,
            None => Format::Jsonl,
        }
    }

    /// The dump, from its begin; a file is whole then.
    fn input(&self) -> Result<Box<dyn BufRead>> {
        let Some(path) = &self.from else {
            return Ok(Box::new(io::stdin().lock()));
        };
        let name = || format!("{} could not be opened", path.display());
        let file = File::open(path).with_context(name)?;
        let status = file.metadata().with_context(name)?;
        let mut input = BufReader::with_capacity(1 << 20, file);
        if status.is_file() && self.format() == Format::Jsonl && !self.unchecked {
            let mut progress = Progress::new("bytes checked");
            let checked = end::check(&mut input, |bytes| {
                progress.tell(|| bytes_of(bytes, status.len()));
            });
            checked.with_context(|| format!("nothing of {} is loaded", path.display()))?;
            input.rewind().with_context(name)?;
        }
        Ok(Box::new(input))
    }
}

/// Where the rows of a table go.
struct Target {
    layout: Layout,
    handle: Handle,
    /// Lines of the rows that wait.
    lines: Vec<u64>,
    bytes: usize,
    rows: u64,
}

/// A table, and its rows that wait to be sent together.
enum Handle {
    Keyed(Table<Vec<u64>>, Vec<(SurrogateId, Vec<u64>)>),
    Plain(Table<Vec<u64>>, Vec<Vec<u64>>),
    Records(Records<Vec<Value>>, Vec<Vec<Value>>),
    Globals(Globals, Vec<(GlobalKey, Vec<u8>)>),
}

struct Loader<'a> {
    engine: &'a Engine,
    session: Session,
    upsert: bool,
    append: bool,
    is_checked: bool,
    targets: BTreeMap<String, Target>,
    progress: Progress,
    rows: u64,
}

impl Loader<'_> {
    fn load_jsonl(&mut self, input: impl BufRead) -> Result<()> {
        let mut tally = Tally::new();
        for (line, number) in input.lines().zip(1..) {
            let at = || format!("line {number}");
            let line = line.with_context(at)?;
            match End::of_line(&line) {
                Some(mark) if self.is_checked => {
                    let closed = mark.and_then(|mark| tally.close(&mark));
                    closed.with_context(at)?;
                }
                Some(_) => {}
                None => {
                    tally.line(&line);
                    self.take_text(&line, number, &mut tally).with_context(at)?;
                }
            }
        }
        if self.is_checked {
            tally.finish()?;
        }
        self.send_all()
    }

    fn take_text(&mut self, text: &str, number: u64, tally: &mut Tally) -> Result<()> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let line = jsonl::Line::read(text)?;
        match line.schema {
            Some(_) => tally.table(&line.table),
            None => tally.row(&line.table),
        }
        self.take_line(line, number)
    }

    fn take_line(&mut self, mut line: jsonl::Line, number: u64) -> Result<()> {
        if let Some(schema) = line.schema.take() {
            return self.begin(Layout::of_json(&line.table, schema)?);
        }
        let Some(target) = self.targets.get(&line.table) else {
            bail!(
                "the schema of table {:?} does not come before its rows",
                line.table
            );
        };
        if target.layout.is_globals() {
            let (key, value) = line.node()?;
            return self.take_node(&line.table, number, key, value);
        }
        let values = line.values(&target.layout)?;
        self.take(&line.table, number, line.key, values)
    }

    fn load_csv(&mut self, input: impl BufRead, table: Option<&str>) -> Result<()> {
        let mut reader = csv::Reader::new(input);
        let mut first = reader
            .line()
            .context("line 1")?
            .context("the dump is empty")?;
        let table = match first.strip_prefix('#') {
            Some(head) if head.starts_with('{') => {
                let line = jsonl::Line::read(head).context("line 1")?;
                let schema = line.schema.context("line 1: this is no schema")?;
                if table.is_some_and(|table| table != line.table) {
                    bail!("line 1: this is a dump of table {:?}", line.table);
                }
                self.begin(Layout::of_json(&line.table, schema)?)?;
                first = reader
                    .line()?
                    .context("line 2: the names of the columns are missing")?;
                line.table
            }
            _ => {
                let table = table
                    .context("line 1: there is no schema: name a table that exists with --table")?;
                let layouts = Layout::of_engine(self.engine, &[table.to_owned()])?;
                for layout in layouts {
                    self.begin(layout)?;
                }
                table.to_owned()
            }
        };
        let layout = match self.targets.get(&table) {
            Some(target) => target.layout.clone(),
            None => bail!("there is no table {table:?}"),
        };
        let at = |number: u64| format!("line {number}");
        let head = reader.lines();
        let names = reader.cells(&first).with_context(|| at(head))?;
        let columns = csv::Columns::new(&layout, &names).with_context(|| at(head))?;
        loop {
            let number = reader.lines() + 1;
            let Some(line) = reader.line().with_context(|| at(number))? else {
                return self.send_all();
            };
            let cells = reader.cells(&line).with_context(|| at(number))?;
            let (key, values) = columns.row(&layout, &cells).with_context(|| at(number))?;
            self.take(&table, number, key, values)
                .with_context(|| at(number))?;
        }
    }

    /// Opens a table, or makes it.
    fn begin(&mut self, layout: Layout) -> Result<()> {
        let name = layout.table.clone();
        let tables = self.engine.tables();
        let existing = tables.into_iter().find(|table| table.name == name);
        if let Some(existing) = &existing
            && Layout::new(&name, &existing.schema)?.schema_json() != layout.schema_json()
        {
            bail!("table {name:?} exists, and has another schema");
        }
        if self.targets.contains_key(&name) {
            return Ok(());
        }
        let handle = match (&layout.schema, existing.is_some()) {
            (TableSchema::Rows(schema), exists) => {
                let table = if exists {
                    self.engine.open_table(&name)?
                } else {
                    self.engine.create_table(&name, schema.clone())?
                };
                if schema.is_keyed() {
                    Handle::Keyed(table, Vec::new())
                } else if self.append || self.session.count(&table)? == 0 {
                    Handle::Plain(table, Vec::new())
                } else {
                    bail!("table {name:?} has no keys, and has rows: give --append to add to them");
                }
            }
            (TableSchema::Globals(routing), exists) => {
                let store = if exists {
                    self.engine.open_globals(&name)?
                } else {
                    self.engine.create_globals(&name, *routing)?
                };
                if !self.upsert && !self.session.globals(&store).is_empty()? {
                    bail!("globals {name:?} have nodes: give --upsert to add to and replace them");
                }
                Handle::Globals(store, Vec::new())
            }
            (TableSchema::Records(schema), false) => {
                let records = self.engine.create_records_with(&name, schema.clone())?;
                Handle::Records(records, Vec::new())
            }
            _ => Handle::Records(self.engine.open_records_with(&name)?, Vec::new()),
        };
        let target = Target {
            layout,
            handle,
            lines: Vec::new(),
            bytes: 0,
            rows: 0,
        };
        self.targets.insert(name, target);
        Ok(())
    }

    /// Takes a row, and sends those that wait if they are many.
    fn take(&mut self, table: &str, line: u64, key: Option<u64>, values: Vec<Value>) -> Result<()> {
        let Some(target) = self.targets.get_mut(table) else {
            bail!("there is no table {table:?}");
        };
        let cells = |values: &[Value]| values.iter().map(cell_of).collect::<Result<Vec<u64>>>();
        match (&mut target.handle, key) {
            (Handle::Keyed(_, rows), Some(key)) => {
                rows.push((SurrogateId(key), cells(&values)?));
            }
            (Handle::Globals(..), _) => bail!("globals {table:?} have no rows: load them as jsonl"),
            (Handle::Keyed(..), None) => bail!("\"key\" is missing: table {table:?} is keyed"),
            (_, Some(_)) => bail!("table {table:?} is not keyed, and the row has a \"key\""),
            (Handle::Plain(_, rows), None) => rows.push(cells(&values)?),
            (Handle::Records(_, rows), None) => {
                target.bytes += values.iter().map(weight_of).sum::<usize>();
                rows.push(values);
            }
        }
        self.taken(table, line)
    }

    /// Takes a node of globals, and sends those that wait if they are many.
    fn take_node(&mut self, table: &str, line: u64, key: GlobalKey, value: Vec<u8>) -> Result<()> {
        let Some(Target {
            handle: Handle::Globals(_, nodes),
            bytes,
            ..
        }) = self.targets.get_mut(table)
        else {
            bail!("there are no globals {table:?}");
        };
        *bytes += key.as_bytes().len() + value.len();
        nodes.push((key, value));
        self.taken(table, line)
    }

    fn taken(&mut self, table: &str, line: u64) -> Result<()> {
        let Some(target) = self.targets.get_mut(table) else {
            return Ok(());
        };
        target.lines.push(line);
        self.rows += 1;
        self.progress.tell(|| self.rows.to_string());
        if target.lines.len() >= BATCH_ROWS || target.bytes >= BATCH_BYTES {
            send(target, &mut self.session, self.upsert)?;
        }
        Ok(())
    }

    fn send_all(&mut self) -> Result<()> {
        for target in self.targets.values_mut() {
            send(target, &mut self.session, self.upsert)?;
        }
        Ok(())
    }

    /// What is in the database already when a load fails.
    fn failed(&self, error: anyhow::Error) -> anyhow::Error {
        let loaded = self.targets.iter().filter(|(_, target)| target.rows > 0);
        let loaded: Vec<String> = loaded
            .map(|(name, target)| format!("{} rows of {name:?}", target.rows))
            .collect();
        match loaded.is_empty() {
            true => error,
            false => error.context(format!("the load ended with {} loaded", loaded.join(", "))),
        }
    }

    fn report(&self, json: bool) -> String {
        if json {
            let rows = self
                .targets
                .iter()
                .map(|(name, target)| (name, target.rows));
            let rows: BTreeMap<_, _> = rows.collect();
            return serde_json::json!({ "rows": rows }).to_string() + "\n";
        }
        let lines = self
            .targets
            .iter()
            .map(|(name, target)| format!("table {name:?}: {} rows loaded\n", target.rows));
        lines.collect()
    }
}

/// About how much memory a value takes.
fn weight_of(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    }
}

fn not_loaded(line: u64) -> String {
    format!("the row of line {line} is not loaded")
}

/// Sends the rows of a table that wait.
fn send(target: &mut Target, session: &mut Session, upsert: bool) -> Result<()> {
    let lines = std::mem::take(&mut target.lines);
    target.bytes = 0;
    let mut refused: Vec<usize> = Vec::new();
    match &mut target.handle {
        Handle::Globals(store, nodes) => {
            let nodes = std::mem::take(nodes);
            session.globals(store).set_batch(&nodes)?;
        }
        Handle::Plain(table, rows) => {
            session.insert_batch(table, &std::mem::take(rows), &mut Vec::new())?;
        }
        Handle::Records(records, rows) => {
            let rows = std::mem::take(rows);
            let mut records = session.records(records);
            if upsert {
                records.upsert_batch(&rows)?;
            } else if target.layout.has_uniques() {
                for (number, row) in rows.iter().enumerate() {
                    match records.insert(row) {
                        Err(Error::DuplicateKey) => refused.push(number),
                        other => other.with_context(|| not_loaded(lines[number]))?,
                    }
                }
            } else {
                records.insert_each(&rows, |number| refused.push(number))?;
            }
        }
        Handle::Keyed(table, rows) => {
            let mut batch = Batch::new(table, rows.len());
            for (key, row) in rows.drain(..) {
                if upsert {
                    batch.upsert(key, &row)?;
                } else {
                    batch.insert(key, &row)?;
                }
            }
            session.run(&mut batch)?;
            for (number, outcome) in batch.outcomes().iter().enumerate() {
                match outcome {
                    Outcome::Failed(Error::Duplicate { .. }) => refused.push(number),
                    Outcome::Failed(error) => {
                        return Err(error.clone()).context(not_loaded(lines[number]));
                    }
                    _ => {}
                }
            }
        }
    }
    target.rows += (lines.len() - refused.len()) as u64;
    match refused.iter().filter_map(|&number| lines.get(number)).min() {
        None => Ok(()),
        Some(line) => bail!(
            "{}: table {:?} has one with its key; give --upsert to replace such rows",
            not_loaded(*line),
            target.layout.table
        ),
    }
}
