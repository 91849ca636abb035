//! What a killed process has said that it does and has done, and whether that is what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::ops::ControlFlow;

use ancile::{DirectId, Engine, Row, Session, SurrogateId, Table, Verbs};

use super::people;

/// Rows of most tables: one value, and what follows from it.
pub(super) type Narrow = [u64; 6];
/// Rows of which a few hundred are a large transaction.
pub(super) type Wide = [u64; 256];
/// Balance, and transfers that this account took part in.
pub(super) type Account = [u64; 2];

pub(super) const ACCOUNTS: u64 = 64;
pub(super) const START: u64 = 1 << 40;

/// The row of a key and a value: every column depends on both.
pub(super) fn row_of<const N: usize>(key: u64, value: u64) -> [u64; N] {
    std::array::from_fn(|at| match at {
        0 => value,
        1 => key,
        _ => (value ^ key.rotate_left(32))
            .wrapping_mul((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
    })
}

fn check_row<const N: usize>(row: &[u64; N]) -> Result<(), String> {
    if *row == row_of(row[1], row[0]) {
        Ok(())
    } else {
        Err(format!("a row is torn: {:x?}", &row[..6]))
    }
}

/// What an operation does. Rows of tables without keys are known by their values, which are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// So many keys from this one on.
    Keys(u64, u64, Option<u64>),
    WideKeys(u64, u64, Option<u64>),
    /// So many new rows with values from this one on.
    New(u64, u64),
    Plain(u64, Option<u64>),
    Person(u64, Option<u64>),
    Note(u64, Option<u64>),
    /// A worker's transfer of this number.
    Transfer(u64, u64),
    /// A table of this number is made, or dropped.
    Table(u64, bool),
}

impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        match *self {
            Self::Keys(first, count, value) => write!(f, "k {first} {count} {}", text(value)),
            Self::WideKeys(first, count, value) => write!(f, "w {first} {count} {}", text(value)),
            Self::New(first, count) => write!(f, "n {first} {count} -"),
            Self::Plain(old, new) => write!(f, "p {old} 1 {}", text(new)),
            Self::Person(number, value) => write!(f, "r {number} 1 {}", text(value)),
            Self::Note(number, value) => write!(f, "s {number} 1 {}", text(value)),
            Self::Transfer(worker, number) => write!(f, "t {worker} {number} -"),
            Self::Table(number, is_made) => write!(f, "d {number} {} -", u64::from(is_made)),
        }
    }
}

impl Change {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        let (one, two) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let value = words.next()?;
        let value = if value == "-" {
            None
        } else {
            Some(value.parse().ok()?)
        };
        Some(match kind {
            "k" => Self::Keys(one, two, value),
            "w" => Self::WideKeys(one, two, value),
            "n" => Self::New(one, two),
            "p" => Self::Plain(one, value),
            "r" => Self::Person(one, value),
            "s" => Self::Note(one, value),
            "t" => Self::Transfer(one, two),
            "d" => Self::Table(one, two == 1),
            _ => return None,
        })
    }
}

/// The line that says what a worker does next: changes of which each group happens as a whole.
pub(super) fn line_of(worker: u64, groups: &[Vec<Change>]) -> String {
    let group = |group: &Vec<Change>| {
        let changes: Vec<String> = group.iter().map(Change::to_string).collect();
        changes.join(",")
    };
    let groups: Vec<String> = groups.iter().map(group).collect();
    format!("{worker}>{}\n", groups.join(";"))
}

/// All rows, by what they are known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rows {
    keys: BTreeMap<u64, u64>,
    wide: BTreeMap<u64, u64>,
    plain: BTreeSet<u64>,
    transfers: BTreeMap<u64, u64>,
    people: BTreeMap<u64, u64>,
    notes: BTreeMap<u64, u64>,
    tables: BTreeSet<u64>,
}

impl Rows {
    /// Makes a change.
    fn make(&mut self, change: Change) {
        let set = |map: &mut BTreeMap<u64, u64>, first: u64, count: u64, value: Option<u64>| {
            for key in first..first + count {
                match value {
                    Some(value) => drop(map.insert(key, value)),
                    None => drop(map.remove(&key)),
                }
            }
        };
        match change {
            Change::Keys(first, count, value) => set(&mut self.keys, first, count, value),
            Change::WideKeys(first, count, value) => set(&mut self.wide, first, count, value),
            Change::Person(number, value) => set(&mut self.people, number, 1, value),
            Change::Note(number, value) => set(&mut self.notes, number, 1, value),
            Change::New(first, count) => self.plain.extend(first..first + count),
            Change::Plain(old, new) => {
                self.plain.remove(&old);
                self.plain.extend(new);
            }
            Change::Transfer(worker, number) => drop(self.transfers.insert(worker, number)),
            Change::Table(number, true) => drop(self.tables.insert(number)),
            Change::Table(number, false) => drop(self.tables.remove(&number)),
        }
    }

    /// What differs first.
    fn difference(&self, found: &Self) -> String {
        let maps = [
            ("keys", &self.keys, &found.keys),
            ("wide keys", &self.wide, &found.wide),
            ("transfers", &self.transfers, &found.transfers),
            ("people", &self.people, &found.people),
            ("notes", &self.notes, &found.notes),
        ];
        for (name, one, other) in maps {
            let all: BTreeSet<&u64> = one.keys().chain(other.keys()).collect();
            if let Some(key) = all.into_iter().find(|key| one.get(key) != other.get(key)) {
                return format!(
                    "{name}: {key} is {:?} instead of {:?}",
                    other.get(key),
                    one.get(key)
                );
            }
        }
        let sets = [
            ("rows without key", &self.plain, &found.plain),
            ("tables", &self.tables, &found.tables),
        ];
        for (name, one, other) in sets {
            if let Some(value) = one.symmetric_difference(other).next() {
                return format!("{name}: {value} is there: {}", other.contains(value));
            }
        }
        "nothing differs".to_owned()
    }
}

/// What must be there.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    rows: Rows,
    ids: BTreeMap<u64, DirectId>,
    /// What each worker is about.
    under_way: BTreeMap<u64, Vec<Vec<Change>>>,
    /// The tables were all made.
    has_begun: bool,
    pub(super) acknowledged: u64,
}

impl Model {
    /// What must be in a new database; the count goes on.
    pub(super) fn of_new_database(&self) -> Self {
        Self {
            acknowledged: self.acknowledged,
            ..Self::default()
        }
    }

    /// Takes in a line of a child's; an error, if it is none.
    pub(super) fn take(&mut self, line: &str) -> Result<(), String> {
        let wrong = || format!("the child says {line:?}");
        if line == "begun" {
            self.has_begun = true;
            return Ok(());
        }
        let at = line.find(['>', '=']).ok_or_else(wrong)?;
        let worker: u64 = line[..at].parse().map_err(|_| wrong())?;
        let rest = &line[at + 1..];
        if line.as_bytes()[at] == b'>' {
            let groups = rest.split(';').filter(|group| !group.is_empty());
            let parse = |group: &str| {
                group
                    .split(',')
                    .map(Change::parse)
                    .collect::<Option<Vec<_>>>()
            };
            let groups: Option<Vec<_>> = groups.map(parse).collect();
            self.under_way.insert(worker, groups.ok_or_else(wrong)?);
            return Ok(());
        }
        let groups = self.under_way.remove(&worker).ok_or_else(wrong)?;
        let mut words = rest.split(' ');
        if words.next() != Some("yes") {
            return Ok(());
        }
        self.acknowledged += 1;
        for change in groups.into_iter().flatten() {
            self.rows.make(change);
            if let Change::New(first, count) = change {
                for (value, id) in (first..first + count).zip(&mut words) {
                    let id = id.parse().map_err(|_| wrong())?;
                    self.ids.insert(value, DirectId::from_u64(id));
                }
            }
        }
        Ok(())
    }

    /// Whether what is there is what must be; takes over what has happened of what was under way.
    pub(super) fn check(&mut self, engine: &Engine) -> Result<(), String> {
        if !self.has_begun {
            return Ok(());
        }
        let found = self.read(engine)?;
        let mut wanted = self.rows.clone();
        for group in std::mem::take(&mut self.under_way).into_values().flatten() {
            let mut after = wanted.clone();
            group.iter().for_each(|&change| after.make(change));
            // The first row that would differ tells which of the two it is; the rest must agree.
            if after != wanted && has_happened(&wanted, &after, &found) {
                wanted = after;
            }
        }
        if wanted != found {
            return Err(wanted.difference(&found));
        }
        self.ids.retain(|value, _| found.plain.contains(value));
        self.rows = found;
        Ok(())
    }

    /// Everything that is there, each row looked for in every way.
    fn read(&self, engine: &Engine) -> Result<Rows, String> {
        let mut session = engine.session().map_err(|error| error.to_string())?;
        let session = &mut session;
        let [people, notes] = people::read(engine, session)?;
        let mut found = Rows {
            keys: keyed::<6>(engine, session, "keys")?,
            wide: keyed::<256>(engine, session, "wide")?,
            transfers: keyed::<6>(engine, session, "transfers")?,
            people,
            notes,
            ..Rows::default()
        };
        let plain: Table<Narrow> = open(engine, "plain")?;
        let mut ids = BTreeMap::new();
        for (id, row) in scan(session, &plain)? {
            check_row(&row)?;
            let value = row[0];
            if !found.plain.insert(value) {
                return Err(format!("value {value} is there twice"));
            }
            ids.insert(value, id);
        }
        for (value, id) in &self.ids {
            if ids.get(value).is_some_and(|found| found != id) {
                return Err(format!(
                    "value {value} is at {:?}, not at {id:?}",
                    ids[value]
                ));
            }
        }
        let accounts: Table<Account> = open(engine, "accounts")?;
        let rows = scan(session, &accounts)?;
        let sum = |part: usize| rows.iter().map(|(_, row)| row[part]).sum::<u64>();
        if rows.len() as u64 != ACCOUNTS || sum(0) != ACCOUNTS * START {
            return Err(format!("{} accounts hold {}", rows.len(), sum(0)));
        }
        let transfers: u64 = found.transfers.values().sum();
        if sum(1) != 2 * transfers {
            return Err(format!("{} halves of {transfers} transfers", sum(1)));
        }
        for table in engine.tables() {
            if let Some(number) = table.name.strip_prefix("extra-") {
                let rows: Table<Narrow> = open(engine, &table.name)?;
                scan(session, &rows)?;
                found.tables.extend(number.parse::<u64>());
            }
        }
        Ok(found)
    }
}

/// Whether a group of changes has happened, by the first trace that it would have left.
fn has_happened(before: &Rows, after: &Rows, found: &Rows) -> bool {
    let maps = [
        (&before.keys, &after.keys, &found.keys),
        (&before.wide, &after.wide, &found.wide),
        (&before.transfers, &after.transfers, &found.transfers),
        (&before.people, &after.people, &found.people),
        (&before.notes, &after.notes, &found.notes),
    ];
    for (before, after, found) in maps {
        let all: BTreeSet<&u64> = before.keys().chain(after.keys()).collect();
        if let Some(key) = all
            .into_iter()
            .find(|key| before.get(key) != after.get(key))
        {
            return found.get(key) == after.get(key);
        }
    }
    let sets = [
        (&before.plain, &after.plain, &found.plain),
        (&before.tables, &after.tables, &found.tables),
    ];
    for (before, after, found) in sets {
        if let Some(value) = before.symmetric_difference(after).next() {
            return found.contains(value) == after.contains(value);
        }
    }
    false
}

/// The values of a table by their keys; each key must find its row.
fn keyed<const N: usize>(
    engine: &Engine,
    session: &mut Session,
    name: &str,
) -> Result<BTreeMap<u64, u64>, String> {
    let table: Table<[u64; N]> = open(engine, name)?;
    let rows = scan(session, &table)?;
    rows.iter().try_for_each(|(_, row)| check_row(row))?;
    let values: BTreeMap<u64, u64> = rows.iter().map(|(_, row)| (row[1], row[0])).collect();
    if values.len() != rows.len() {
        return Err(format!(
            "{} rows of {name} have {} keys",
            rows.len(),
            values.len()
        ));
    }
    let keys: Vec<_> = rows.iter().map(|(_, row)| SurrogateId(row[1])).collect();
    let by_key = session
        .select_batch(&table, &keys)
        .map_err(|error| error.to_string())?;
    match rows
        .iter()
        .zip(by_key)
        .find(|((_, row), by_key)| *by_key != Some(*row))
    {
        None => Ok(values),
        Some(((id, row), by_key)) => Err(format!(
            "{name}: the row of key {} is at {id:?}, and the key finds {:?}",
            row[1],
            by_key.map(|row| row[0])
        )),
    }
}

fn open<R: Row>(engine: &Engine, name: &str) -> Result<Table<R>, String> {
    let opened = engine.open_table(name);
    opened.map_err(|error| format!("table {name}: {error}"))
}

/// The rows of a table, as many as are counted.
pub(super) fn scan<R: Row>(
    session: &mut Session,
    table: &Table<R>,
) -> Result<Vec<(DirectId, R)>, String> {
    let mut rows = Vec::new();
    let visit = |_: &mut Session, id: DirectId, row: R| {
        rows.push((id, row));
        ControlFlow::Continue(())
    };
    session
        .scan(table, visit)
        .map_err(|error| error.to_string())?;
    let count = session.count(table).map_err(|error| error.to_string())?;
    if count == rows.len() as u64 {
        Ok(rows)
    } else {
        Err(format!("{} rows are counted as {count}", rows.len()))
    }
}
