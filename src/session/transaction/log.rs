//! What a transaction has read, and what it wants to change.
//!
//! A row has one entry, whichever way it was found: rows of keyed tables go by their key, others by
//! their direct id. An entry has what was read of the row, what the transaction makes of it, and the
//! values that it relies on at any isolation.

use hashbrown::HashMap;

use super::Isolation;
use super::nodes::Nodes;
use crate::id::{DirectId, RowId, ShardIndex, SurrogateId, TableKey};
use crate::shard::{Fetched, Sighting};
use crate::transaction::mutant::{self, Mutant};
use crate::transaction::{Action, Expected, Operation, Proposal, Purpose, Target};

/// A row's name in the log: its key, or its direct id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    table: TableKey,
    is_key: bool,
    row: u64,
}

impl Name {
    pub(super) fn new<I: RowId>(table: TableKey, id: I) -> Self {
        Self {
            table,
            is_key: I::KEYED,
            row: id.raw(),
        }
    }
}

/// What a transaction makes of a row.
#[derive(Clone, Debug)]
enum Now {
    AsSeen,
    /// All columns were written.
    Written(Box<[u64]>),
    /// These columns were set; the row as it looks then.
    Set(Vec<usize>, Box<[u64]>),
    Deleted,
}

/// A row that a transaction has to do with.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    table: TableKey,
    shard: ShardIndex,
    is_keyed: bool,
    /// Its place was reserved by this transaction.
    is_reserved: bool,
    /// The direct id by which a row with a key was looked for last.
    place: Option<DirectId>,
    seen: Option<Fetched>,
    /// Whether what was read was the row's last decided state.
    is_settled: bool,
    now: Now,
    /// Columns and values, as they were seen, that must still be so.
    relied_on: Vec<(usize, u64)>,
    /// Of a record: what it is looked for with.
    wanted: Option<Wanted>,
    /// What is written was made of what was seen, which must therefore still be so.
    is_derived: bool,
}

/// A record's key: its hash, and an image that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Wanted {
    pub(in crate::session) hash: u64,
    pub(in crate::session) image: Box<[u64]>,
}

impl Touched {
    pub(super) fn new(
        table: TableKey,
        shard: ShardIndex,
        is_keyed: bool,
        sighting: Sighting,
    ) -> Self {
        Self {
            table,
            shard,
            is_keyed,
            is_reserved: false,
            place: None,
            seen: sighting.row,
            is_settled: sighting.is_settled,
            now: Now::AsSeen,
            relied_on: Vec::new(),
            wanted: None,
            is_derived: false,
        }
    }

    /// A record, in the shard of its key.
    pub(super) fn of_record(
        table: TableKey,
        shard: ShardIndex,
        wanted: Wanted,
        sighting: Sighting,
    ) -> Self {
        Self {
            wanted: Some(wanted),
            ..Self::new(table, shard, true, sighting)
        }
    }

    fn seen_cells(&self) -> Option<&[u64]> {
        self.seen.as_ref().map(|fetched| &*fetched.cells)
    }

    /// What tells one state of a row from another.
    fn version(&self) -> Option<(u32, u64)> {
        self.seen
            .as_ref()
            .map(|fetched| (fetched.slot, fetched.header))
    }

    /// Takes notice of a later look at the row. Where reads are repeatable, the first one counts; if
    /// the row has changed since, that will be found when it is checked.
    fn look_again(&mut self, later: Self, is_repeatable: bool) {
        if is_repeatable {
            self.is_settled &= later.is_settled && later.version() == self.version();
        } else if matches!(self.now, Now::AsSeen) {
            (self.seen, self.place) = (later.seen, later.place);
        }
    }

    fn cells(&self) -> Option<&[u64]> {
        match &self.now {
            Now::AsSeen => self.seen_cells(),
            Now::Written(cells) | Now::Set(_, cells) => Some(cells),
            Now::Deleted => None,
        }
    }

    /// Whether committing it would change something.
    fn is_changed(&self) -> bool {
        match self.now {
            Now::AsSeen => false,
            Now::Written(_) | Now::Set(..) => true,
            Now::Deleted => self.seen_cells().is_some(),
        }
    }
}

#[derive(Default)]
pub(in crate::session) struct Log {
    names: HashMap<Name, usize>,
    rows: Vec<(Name, Touched)>,
    /// What was made of rows before each change, and how many values were relied on; the last one last.
    before: Vec<(usize, Now, usize)>,
    /// Places reserved for rows: which, and where.
    reserved: Vec<(TableKey, ShardIndex, DirectId)>,
    pub(super) nodes: Nodes,
}

/// In the list of changes: one of a node of globals.
const NODE: usize = usize::MAX;

impl Log {
    /// The entry of a row.
    pub(super) fn find<I: RowId>(&self, table: TableKey, id: I) -> Option<usize> {
        self.names.get(&Name::new(table, id)).copied()
    }

    /// The entry of a record, or the name that it is to have. Keys with the same hash have names of
    /// their own.
    pub(super) fn find_record(&self, table: TableKey, wanted: &Wanted) -> Result<usize, Name> {
        let mut row = wanted.hash;
        loop {
            let name = Name {
                table,
                is_key: true,
                row,
            };
            match self.names.get(&name) {
                None => return Err(name),
                Some(&at) if self.rows[at].1.wanted.as_ref() == Some(wanted) => return Ok(at),
                Some(_) => row = row.wrapping_add(1),
            }
        }
    }

    /// Notes what was read of a record; its entry.
    pub(super) fn learn_record(&mut self, touched: Touched, is_repeatable: bool) -> usize {
        let Some(wanted) = touched.wanted.clone() else {
            return usize::MAX;
        };
        match self.find_record(touched.table, &wanted) {
            Ok(at) => {
                self.rows[at].1.look_again(touched, is_repeatable);
                at
            }
            Err(name) => {
                self.rows.push((name, touched));
                let at = self.rows.len() - 1;
                self.names.insert(name, at);
                at
            }
        }
    }

    /// Notes what was read of a row. What is changed here stays; so does, where reads are repeatable,
    /// what was read before.
    pub(super) fn learn<I: RowId>(&mut self, id: I, mut touched: Touched, is_repeatable: bool) {
        let name = Name::new(touched.table, id);
        let known = match &touched.seen {
            // A row that was found by direct id in a keyed table goes by its key.
            Some(fetched) if touched.is_keyed => {
                touched.place = (!I::KEYED).then(|| DirectId::from_u64(id.raw()));
                Name::new(touched.table, SurrogateId(fetched.number))
            }
            _ => name,
        };
        let at = match self.names.get(&known).or_else(|| self.names.get(&name)) {
            Some(&at) => {
                self.rows[at].1.look_again(touched, is_repeatable);
                at
            }
            None => {
                self.rows.push((known, touched));
                self.rows.len() - 1
            }
        };
        self.names.insert(known, at);
        self.names.insert(name, at);
    }

    /// Notes a row that will have a place reserved for it.
    pub(super) fn reserved(
        &mut self,
        table: TableKey,
        shard: ShardIndex,
        id: DirectId,
        cells: Box<[u64]>,
    ) {
        self.reserved.push((table, shard, id));
        let nothing = Sighting {
            row: None,
            is_settled: true,
        };
        let mut touched = Touched::new(table, shard, false, nothing);
        touched.is_reserved = true;
        self.learn(id, touched, true);
        if let Some(at) = self.find(table, id) {
            self.write(at, cells);
        }
    }

    /// A row as the transaction sees it.
    pub(super) fn row(&self, at: usize) -> Option<&[u64]> {
        self.rows[at].1.cells()
    }

    /// Whether the transaction has changed a row.
    pub(super) fn is_changed(&self, at: usize) -> bool {
        !matches!(self.rows[at].1.now, Now::AsSeen)
    }

    pub(super) fn write(&mut self, at: usize, cells: Box<[u64]>) {
        self.become_now(at, Now::Written(cells), &[]);
    }

    /// Sets columns. Values of `relied_on` must still be there when the transaction commits, but for
    /// those that it has written itself, which are nobody else's business.
    pub(super) fn set(&mut self, at: usize, relied_on: &[(usize, u64)], values: &[(usize, u64)]) {
        let row = &self.rows[at].1;
        let Some(cells) = row.cells() else { return };
        let relied_on: Vec<_> = match &row.now {
            Now::AsSeen => relied_on.to_vec(),
            Now::Set(own, _) => {
                let is_own = |&(column, _): &(usize, u64)| own.contains(&column);
                relied_on
                    .iter()
                    .copied()
                    .filter(|value| !is_own(value))
                    .collect()
            }
            Now::Written(_) | Now::Deleted => Vec::new(),
        };
        let mut cells: Box<[u64]> = cells.into();
        for &(column, value) in values {
            cells[column] = value;
        }
        let columns = values.iter().map(|&(column, _)| column);
        let now = match &row.now {
            Now::AsSeen => Now::Set(columns.collect(), cells),
            Now::Set(before, _) => {
                let mut all = before.clone();
                all.extend(columns.filter(|column| !before.contains(column)));
                Now::Set(all, cells)
            }
            Now::Written(_) | Now::Deleted => Now::Written(cells),
        };
        self.become_now(at, now, &relied_on);
    }

    /// Writes what was made of the row as it was seen.
    pub(super) fn derive(&mut self, at: usize, cells: Box<[u64]>) {
        self.rely_on(at);
        self.write(at, cells);
    }

    /// Notes that a row must still be as it was seen.
    pub(super) fn rely_on(&mut self, at: usize) {
        self.rows[at].1.is_derived = true;
    }

    pub(super) fn delete(&mut self, at: usize) {
        self.become_now(at, Now::Deleted, &[]);
    }

    fn become_now(&mut self, at: usize, now: Now, relied_on: &[(usize, u64)]) {
        let row = &mut self.rows[at].1;
        let before = std::mem::replace(&mut row.now, now);
        self.before.push((at, before, row.relied_on.len()));
        row.relied_on.extend_from_slice(relied_on);
    }

    /// Notes changes of nodes of globals.
    pub(super) fn note_nodes(&mut self, changes: usize) {
        let change = || (NODE, Now::AsSeen, 0);
        self.before
            .extend(std::iter::repeat_with(change).take(changes));
    }

    pub(in crate::session) fn moment(&self) -> usize {
        self.before.len()
    }

    pub(in crate::session) fn roll_back_to(&mut self, moment: usize) {
        let moment = moment + usize::from(mutant::is(Mutant::SavepointForgets));
        while self.before.len() > moment
            && let Some((at, before, relied_on)) = self.before.pop()
        {
            if at == NODE {
                self.nodes.take_back();
                continue;
            }
            let row = &mut self.rows[at].1;
            row.now = before;
            row.relied_on.truncate(relied_on);
        }
    }

    /// Places reserved and, if the transaction has committed, not used.
    pub(in crate::session) fn unused_places(
        &mut self,
        has_committed: bool,
    ) -> Vec<(TableKey, ShardIndex, DirectId)> {
        let mut places = std::mem::take(&mut self.reserved);
        places.retain(|&(table, _, id)| {
            let is_used = self
                .find(table, id)
                .is_some_and(|at| self.rows[at].1.cells().is_some());
            !(has_committed && is_used)
        });
        places
    }

    /// Takes all places reserved: those to be given back after a commit, and those without one.
    #[expect(clippy::type_complexity, reason = "two lists of places")]
    pub(in crate::session) fn places(
        &mut self,
    ) -> (
        Vec<(TableKey, ShardIndex, DirectId)>,
        Vec<(TableKey, ShardIndex, DirectId)>,
    ) {
        let all = self.reserved.clone();
        (self.unused_places(true), all)
    }

    pub(super) fn has_changes(&self) -> bool {
        self.nodes.has_changes() || self.rows.iter().any(|(_, row)| row.is_changed())
    }

    /// Whether a row that was looked for was not there, or a node was read: either may have been
    /// otherwise meanwhile, and be again as it was seen.
    pub(super) fn has_seen_absence(&self) -> bool {
        self.nodes.has_seen() || self.rows.iter().any(|(_, row)| row.seen.is_none())
    }

    /// Whether all that was read was so at one moment, and nothing was decided then that was not to be
    /// seen yet: one row, when nobody was about to change it.
    pub(super) fn is_of_one_moment(&self) -> bool {
        match &self.rows[..] {
            [] => self.nodes.is_of_one_moment(),
            [_] if self.nodes.has_seen() => false,
            [(_, row)] => row.is_settled || mutant::is(Mutant::LoneReadUnguarded),
            _ => false,
        }
    }

    /// Adds what the transaction wants of each shard to a proposal, whose parts may stand already.
    pub(super) fn propose(&self, proposal: &mut Proposal, isolation: Isolation) {
        self.nodes.propose(proposal, isolation);
        for (number, (name, row)) in self.rows.iter().enumerate() {
            if isolation == Isolation::ReadCommitted && !row.is_changed() {
                continue;
            }
            // Nobody else knows of a place that was reserved, and the next try has another.
            if proposal.purpose == Purpose::Lease && row.is_reserved {
                continue;
            }
            let Some(target) = row.target(*name) else {
                continue;
            };
            let part = proposal.part(row.shard);
            let expected = row.expected(isolation, &mut part.cells);
            let (target, action) = match &row.wanted {
                Some(wanted) => row.record_target(wanted, &mut part.cells),
                None => (target, row.action(&mut part.cells)),
            };
            part.operations.push(Operation {
                member: 0,
                number: number as u32,
                table: row.table,
                target,
                expected,
                action,
                is_clients_slot: row.is_reserved,
            });
        }
    }
}

impl Touched {
    /// How the shard is to find the row; `None` for one that came and went within the transaction.
    fn target(&self, name: Name) -> Option<Target> {
        if name.is_key {
            let by_key = Target::Key(name.row);
            return Some(self.place.map_or(by_key, Target::Direct));
        }
        let id = DirectId::from_u64(name.row);
        if !self.is_reserved {
            return Some(Target::Direct(id));
        }
        self.cells().is_some().then_some(Target::Reserved(id))
    }

    fn expected(&self, isolation: Isolation, cells: &mut Vec<u64>) -> Expected {
        match (isolation, &self.seen) {
            (_, None) if self.is_reserved => Expected::Any,
            (Isolation::Serializable, None) => Expected::StillAbsent,
            (Isolation::Serializable, Some(Fetched { slot, header, .. })) => {
                let start = cells.len() as u32;
                cells.extend([u64::from(*slot), *header]);
                Expected::Version { start }
            }
            (Isolation::ReadCommitted, None) => Expected::Absent,
            (Isolation::ReadCommitted, Some(Fetched { slot, header, .. })) if self.is_derived => {
                let start = cells.len() as u32;
                cells.extend([u64::from(*slot), *header]);
                Expected::Version { start }
            }
            (Isolation::ReadCommitted, Some(_)) if self.relied_on.is_empty() => Expected::Present,
            (Isolation::ReadCommitted, Some(_)) => {
                let (start, count) = append(cells, self.relied_on.iter().copied());
                Expected::Values { start, count }
            }
        }
    }

    /// How the shard is to find a record, and what to do with it: both have the same image.
    fn record_target(&self, wanted: &Wanted, cells: &mut Vec<u64>) -> (Target, Action) {
        cells.push(wanted.hash);
        let start = cells.len() as u32;
        let action = match &self.now {
            Now::Written(image) | Now::Set(_, image) => {
                cells.extend_from_slice(image);
                if self.seen_cells().is_some() {
                    Action::Update { start }
                } else {
                    Action::Insert { start }
                }
            }
            Now::Deleted if self.seen_cells().is_some() => Action::Delete,
            Now::AsSeen | Now::Deleted => Action::Check,
        };
        if matches!(action, Action::Delete | Action::Check) {
            cells.extend_from_slice(&wanted.image);
        }
        (Target::Record { start }, action)
    }

    fn action(&self, cells: &mut Vec<u64>) -> Action {
        match &self.now {
            Now::AsSeen => Action::Check,
            Now::Deleted if self.seen_cells().is_none() => Action::Check,
            Now::Deleted => Action::Delete,
            Now::Written(row) => {
                let start = cells.len() as u32;
                cells.extend_from_slice(row);
                if self.seen_cells().is_some() {
                    Action::Update { start }
                } else {
                    Action::Insert { start }
                }
            }
            Now::Set(columns, row) => {
                let values = columns.iter().map(|&column| (column, row[column]));
                let (start, count) = append(cells, values);
                Action::Set { start, count }
            }
        }
    }
}

/// Appends pairs of column and value; where they begin, and how many.
fn append(cells: &mut Vec<u64>, pairs: impl Iterator<Item = (usize, u64)>) -> (u32, u32) {
    let start = cells.len();
    for (column, value) in pairs {
        cells.extend([column as u64, value]);
    }
    (start as u32, ((cells.len() - start) / 2) as u32)
}
