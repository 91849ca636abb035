//! A shard's part in transactions over several shards: the steps of the ordered chain.
//!
//! ```text
//! arrive    leave an intent for each row, in the order of coming
//! proceed   once granted: check what the transactions rely on, reserve what they insert;
//!           then on to the next participant, or, at the last one, decide
//! settle    on the way back: apply or undo, drop the intents, let those behind go on
//! ```
//! A proposal never waits but for intents that came here before it. Whatever can fail does so before
//! the decision: inserts have their slot and their place in the index by then.

use super::nodes::node_keys;
use super::{Outbox, Shard};
use crate::error::Error;
use crate::id::SurrogateId;
#[cfg(test)]
use crate::table::watch::{self, What};
use crate::table::{Dynamic, Image, Place, TablePart, Together};
use crate::transaction::mutant::{self, Mutant};
use crate::transaction::{
    Action, Added, Baton, Cause, EntryId, Expected, Found, IntentsFull, Mode, NEVER, Operation,
    Part, Phase, Purpose, RowKey, Spot, Target, Verdict,
};

/// What an entry of intents belongs to.
pub(crate) enum Holder {
    /// A proposal that waits here.
    Here(Baton),
    /// A proposal that has gone on to a higher shard and will come back.
    Away,
    /// A transaction that is being tried again; the time ends by the engine's clock.
    Leased { until: u64 },
    /// A request, or resident code, that looks for itself whether it is its turn; called when it is.
    Guest { is_called: bool },
}

impl Holder {
    pub(super) const GUEST: Self = Self::Guest { is_called: false };
}

impl Shard {
    /// Takes a proposal whose turn it is here.
    pub(crate) fn receive(&mut self, baton: Baton) {
        match baton.phase {
            Phase::Up => self.arrive(baton),
            Phase::Down => self.settle(baton),
        }
        self.let_go_on();
    }

    /// Lets everybody proceed who was granted.
    #[inline]
    pub(super) fn let_go_on(&mut self) {
        if self.intents.has_granted() {
            self.let_all_go_on();
        }
    }

    fn let_all_go_on(&mut self) {
        while let Some(entry) = self.intents.next_granted() {
            let Some(holder) = self.intents.holder(entry) else {
                continue;
            };
            match holder {
                Holder::Here(_) => {
                    if let Holder::Here(baton) = std::mem::replace(holder, Holder::Away) {
                        self.proceed(baton);
                    }
                }
                Holder::Guest { is_called } => {
                    *is_called = true;
                    self.called += 1;
                }
                Holder::Away | Holder::Leased { .. } => {}
            }
        }
    }

    fn arrive(&mut self, mut baton: Baton) {
        self.ask_ahead(&baton);
        if baton.is_leased {
            return self.arrive_leased(baton);
        }
        if baton.purpose == Purpose::Validate && mutant::is(Mutant::ValidationUnguarded) {
            return self.proceed(baton);
        }
        if baton.parts.len() == 1
            && baton.purpose != Purpose::Lease
            && self.intents.is_empty()
            && !self.is_large(&baton.parts[0])
        {
            self.decide_alone(&mut baton);
            return self.go_home(baton);
        }
        match self.enter(&mut baton) {
            Ok(entry) => {
                let step = baton.step;
                baton.parts[step].entry = entry;
                self.expect_until(baton.deadline);
                self.intents.seal(entry, Holder::Here(baton));
                if !self.intents.is_granted(entry) {
                    self.note_parked_proposal(entry);
                }
            }
            Err(IntentsFull) => {
                baton.fail(&Error::TooManyIntents { shard: self.index });
                self.turn_back(baton);
            }
        }
    }

    /// Starts reading the rows that a proposal names here: by key, first where they are.
    fn ask_ahead(&mut self, baton: &Baton) {
        let operations = &baton.parts[baton.step].operations;
        let is_keyed = |operation: &Operation| matches!(operation.target, Target::Key(_));
        let passes = 1 + usize::from(operations.iter().any(is_keyed));
        for near in [false, true].into_iter().take(passes) {
            for operation in operations {
                let Ok((part, _)) = self.catalog.table(operation.table) else {
                    continue;
                };
                match operation.target {
                    Target::Key(key) => part.ask(SurrogateId(key), near),
                    Target::Direct(id) if !near => part.ask(id, near),
                    Target::Direct(_)
                    | Target::New
                    | Target::Reserved(_)
                    | Target::Record { .. }
                    | Target::Node { .. }
                    | Target::Subtree { .. } => {}
                }
            }
        }
    }

    /// Leaves an entry for each row that a proposal names here.
    fn enter(&mut self, baton: &mut Baton) -> Result<EntryId, IntentsFull> {
        let all_write = baton.purpose == Purpose::Lease;
        let step = baton.step;
        // All members are checked before any is applied.
        let shared = baton.parts.len() > 1 || self.is_large(&baton.parts[step]);
        let baton = &mut **baton;
        let entry = self.intents.begin(Mode::Read)?;
        for operation in &baton.parts[step].operations {
            let mode = if all_write || operation.action.changes() {
                Mode::Write
            } else {
                Mode::Read
            };
            if mode == Mode::Read && mutant::is(Mutant::ReadsUnguarded) {
                continue;
            }
            let keys = self.keys_of(operation, &baton.parts[step].cells, mode);
            for (key, mode) in keys.into_iter().flatten() {
                match self.intents.add(entry, key, mode, operation.member) {
                    Ok(Added::Clashes) if shared => {
                        let verdict = &mut baton.verdicts[operation.member as usize];
                        if verdict.is_open() {
                            *verdict = Verdict::Conflict(Cause::Neighbour);
                        }
                    }
                    Ok(_) => {}
                    Err(full) => {
                        self.intents.release(entry);
                        return Err(full);
                    }
                }
            }
        }
        Ok(entry)
    }

    /// What an operation wants to have to itself, or unchanged.
    fn keys_of(
        &mut self,
        operation: &Operation,
        cells: &[u64],
        mode: Mode,
    ) -> [Option<(RowKey, Mode)>; 2] {
        node_keys(operation, cells, mode)
            .unwrap_or_else(|| [self.row_key(operation, cells).map(|key| (key, mode)), None])
    }

    /// The row that an operation names, whichever way it does.
    fn row_key(&mut self, operation: &Operation, cells: &[u64]) -> Option<RowKey> {
        let table = operation.table.index;
        if let Target::Record { start } = operation.target {
            // Records whose keys have the same hash stand in each other's way.
            let row = cells[start as usize - 1];
            return Some(RowKey { table, row });
        }
        let (part, _) = self.catalog.table(operation.table).ok()?;
        let row = match operation.target {
            Target::Key(key) => key,
            Target::Direct(id) | Target::Reserved(id) => part.row_number(id)?,
            _ => return None,
        };
        Some(RowKey { table, row })
    }

    /// A proposal whose intents stand already.
    fn arrive_leased(&mut self, mut baton: Baton) {
        let step = baton.step;
        let entry = baton.parts[step].entry;
        let is_held = matches!(self.intents.holder(entry), Some(Holder::Leased { .. }));
        if is_held && let Some(holder) = self.intents.holder(entry) {
            *holder = Holder::Away;
        }
        let covered = mutant::is(Mutant::LeaseUncovered)
            || is_held
                && baton.parts[step].operations.iter().all(|operation| {
                    let mode = if operation.action.changes() {
                        Mode::Write
                    } else {
                        Mode::Read
                    };
                    let keys = self.keys_of(operation, &baton.parts[step].cells, mode);
                    let mut keys = keys.into_iter().flatten();
                    keys.all(|(key, mode)| self.intents.covers(entry, key, mode))
                });
        if covered {
            self.proceed(baton);
        } else {
            for verdict in &mut baton.verdicts {
                *verdict = Verdict::Conflict(Cause::Lease);
            }
            // The intents of the parts above stand, too: the way back begins at the last one.
            baton.phase = Phase::Down;
            let last = baton.parts.len() - 1;
            if step == last {
                self.settle(baton);
            } else {
                baton.step = last;
                self.send(baton);
            }
        }
    }

    /// Goes on with a proposal whose intents are granted here.
    fn proceed(&mut self, mut baton: Baton) {
        if baton.deadline != NEVER && self.now() >= baton.deadline {
            baton.fail(&Error::TimedOut);
        }
        if baton.parts.len() == 1
            && baton.purpose == Purpose::Commit
            && !self.is_large(&baton.parts[0])
        {
            self.decide_alone(&mut baton);
            self.intents.release(baton.parts[0].entry);
            return self.go_home(baton);
        }
        match baton.purpose {
            Purpose::Commit => {
                self.check(&mut baton);
                if mutant::is(Mutant::DecidedTooSoon) {
                    decide(&mut baton);
                }
                if baton.is_open()
                    && let Err(error) = self.keep(&mut baton)
                {
                    baton.fail(&error);
                }
                if !baton.is_open() && !mutant::is(Mutant::DecidedTooSoon) {
                    // It may have a long way yet, and what it has reserved is not kept.
                    self.conclude_part(&mut baton);
                }
                if baton.is_last() || !baton.is_open() && !baton.is_leased {
                    decide(&mut baton);
                    baton.phase = Phase::Down;
                    self.settle(baton);
                } else {
                    self.go_up(baton);
                }
            }
            Purpose::Validate => {
                self.check(&mut baton);
                let entry = baton.parts[baton.step].entry;
                self.intents.release(entry);
                if baton.is_last() || !baton.is_open() {
                    decide(&mut baton);
                    self.go_home(baton);
                } else {
                    self.go_up(baton);
                }
            }
            Purpose::Lease if baton.is_open() => {
                let until = self.now() + baton.lease_micros;
                self.expect_until(until);
                let entry = baton.parts[baton.step].entry;
                if let Some(holder) = self.intents.holder(entry) {
                    *holder = Holder::Leased { until };
                }
                if baton.is_last() {
                    decide(&mut baton);
                    self.go_home(baton);
                } else {
                    self.go_up(baton);
                }
            }
            Purpose::Lease => {
                baton.phase = Phase::Down;
                self.settle(baton);
            }
        }
    }

    /// Sees to it that a crash leaves a proposal whole: what is to be done here outlives it, and at the
    /// last participant there is room for the decision.
    fn keep(&mut self, baton: &mut Baton) -> Result<(), Error> {
        if !self.catalog.arena().is_logged() {
            return Ok(());
        }
        let is_large = self.is_large(&baton.parts[baton.step]);
        if !baton.is_last() || is_large {
            self.prepare_part(baton)?;
        }
        if baton.is_last()
            && let Some(ticket) = baton.ticket
        {
            self.expect_decision(ticket)?;
        }
        if !baton.is_last() || is_large {
            self.catalog.end_scope();
        }
        Ok(())
    }

    /// Decides transactions that only this shard takes part in, one after the other.
    fn decide_alone(&mut self, baton: &mut Baton) {
        #[cfg(test)]
        watch::act_for(baton.author);
        let proposal = &mut **baton;
        let Part {
            operations,
            cells,
            spots,
            ..
        } = &mut proposal.parts[0];
        for operations in operations.chunk_by(|one, next| one.member == next.member) {
            let verdict = &mut proposal.verdicts[operations[0].member as usize];
            spots.clear();
            for operation in operations {
                spots.push(self.check_into(verdict, operation, cells));
            }
            if verdict.is_open() {
                *verdict = Verdict::Committed;
            }
            for (operation, &spot) in operations.iter().zip(&*spots) {
                self.conclude(operation, spot, cells, verdict);
            }
            if self.catalog.arena().is_scope_long() {
                self.catalog.end_scope();
            }
        }
        self.catalog.end_scope();
        decide(baton);
    }

    /// Checks what the transactions rely on here, and reserves what they insert.
    fn check(&mut self, baton: &mut Baton) {
        let proposal = &mut **baton;
        let Part {
            operations,
            cells,
            spots,
            ..
        } = &mut proposal.parts[proposal.step];
        spots.clear();
        for operation in operations {
            let verdict = &mut proposal.verdicts[operation.member as usize];
            spots.push(self.check_into(verdict, operation, cells));
        }
    }

    /// Checks one operation of a transaction that nothing speaks against so far; its slot.
    fn check_into(
        &mut self,
        verdict: &mut Verdict,
        operation: &Operation,
        cells: &mut [u64],
    ) -> Spot {
        if !verdict.is_open() {
            return Spot::Nowhere;
        }
        if operation.action.changes()
            && let Err(error) = self.catalog.arena().check_writable()
        {
            *verdict = Verdict::failed(error);
            return Spot::Nowhere;
        }
        let checked = match operation.target {
            Target::Record { start } => self.check_record(operation, start as usize, cells),
            Target::Node { start } | Target::Subtree { start } => {
                self.check_node(operation, start, cells)
            }
            _ => self.check_one(operation, cells),
        };
        checked.unwrap_or_else(|other| {
            *verdict = other;
            Spot::Nowhere
        })
    }

    /// Where the operation's row is, if all is as it must be.
    fn check_one(&mut self, operation: &Operation, cells: &[u64]) -> Result<Spot, Verdict> {
        let (part, arena) = self
            .catalog
            .table(operation.table)
            .map_err(Verdict::failed)?;
        let place = match operation.target {
            Target::Key(key) => part.find(SurrogateId(key)),
            Target::Direct(id) => part.find(id),
            _ => None,
        };
        meets(part, place, operation, cells)?;
        let found = place.map_or(Spot::Nowhere, |place| Spot::Found(place.slot()));
        let (Action::Insert { start } | Action::Upsert { start }) = operation.action else {
            return Ok(found);
        };
        if place.is_some() {
            return Ok(found);
        }
        let row = &cells[start as usize..][..part.columns()];
        let place = match operation.target {
            Target::Key(key) => part.reserve_row(arena, Some(key), row),
            Target::New => part.reserve_row(arena, None, row),
            Target::Reserved(id) => part.fill_reserved(arena, id, row),
            _ => return Ok(found),
        };
        place
            .map(|place| Spot::Reserved(place.slot()))
            .map_err(Verdict::failed)
    }

    /// As [`check_one`](Self::check_one), of a record, whose image is at `start` of the cells. The cells
    /// of one that will replace another are made those of its row.
    fn check_record(
        &mut self,
        operation: &Operation,
        start: usize,
        cells: &mut [u64],
    ) -> Result<Spot, Verdict> {
        let (part, arena) = self
            .catalog
            .records(operation.table)
            .map_err(Verdict::failed)?;
        let (hash, words) = (cells[start - 1], &cells[start..]);
        let Some((image, _)) = Image::split(words) else {
            return Err(Verdict::failed(Error::KeyShape));
        };
        let place = part.find(arena, hash, &image);
        let is_same = |version| match (place, version) {
            (Some(place), Some(start)) => {
                let (slot, header) = part.version(place);
                cells[start..][..2] == [u64::from(slot), header]
            }
            _ => false,
        };
        let refused = |found| {
            Err(Verdict::Refused {
                operation: operation.number,
                found,
            })
        };
        let is_met = match operation.expected {
            Expected::Any => true,
            Expected::Present if place.is_none() => return refused(Found::Nothing),
            Expected::Absent if place.is_some() => return refused(Found::Row),
            Expected::Present | Expected::Absent => true,
            Expected::StillAbsent => place.is_none() || mutant::is(Mutant::AbsenceUnchecked),
            Expected::Version { start } => {
                is_same(Some(start as usize)) || mutant::is(Mutant::VersionsUnchecked)
            }
            Expected::Values { .. } => false,
        };
        if !is_met {
            return Err(Verdict::Conflict(Cause::Changed));
        }
        let writes = matches!(
            operation.action,
            Action::Insert { .. } | Action::Update { .. } | Action::Upsert { .. }
        );
        match place {
            Some(place) if writes => part
                .prepare_update(arena, place, &mut cells[start..])
                .map(|()| Spot::Found(place.slot()))
                .map_err(Verdict::failed),
            Some(place) => Ok(Spot::Found(place.slot())),
            None if writes && !matches!(operation.action, Action::Update { .. }) => part
                .reserve(arena, &image)
                .map(|place| Spot::Reserved(place.slot()))
                .map_err(Verdict::failed),
            None => Ok(Spot::Nowhere),
        }
    }

    /// Does what was decided about an operation on a record.
    fn conclude_record(
        &mut self,
        operation: &Operation,
        start: usize,
        spot: Spot,
        cells: &mut [u64],
        is_committed: bool,
    ) {
        let Ok((part, arena)) = self.catalog.records(operation.table) else {
            return;
        };
        let (slot, is_reserved) = match spot {
            Spot::Nowhere => return,
            Spot::Found(slot) => (slot, false),
            Spot::Reserved(slot) => (slot, true),
        };
        let place = part.place(slot);
        let prepared = &cells[start..];
        match (operation.action, is_reserved, is_committed) {
            (_, true, true) => part.confirm(arena, place),
            (_, true, false) => part.cancel(arena, place),
            (Action::Delete, false, true) => part.delete(arena, place, &mut Together),
            (Action::Check | Action::Delete | Action::Set { .. }, false, _) => {}
            (_, false, true) => part.apply_update(arena, place, &prepared[1..]),
            (_, false, false) => part.abandon_update(arena, place, &prepared[1..]),
        }
    }

    /// Does what was decided about the part at hand, if that is still to be done.
    fn conclude_part(&mut self, baton: &mut Baton) {
        let proposal = &mut **baton;
        let Part {
            operations,
            cells,
            spots,
            kept,
            ..
        } = &mut proposal.parts[proposal.step];
        let may_pause = kept.is_some();
        for (operation, spot) in operations.iter().zip(spots.drain(..)) {
            let verdict = &proposal.verdicts[operation.member as usize];
            self.conclude(operation, spot, cells, verdict);
            if may_pause && self.catalog.arena().is_scope_long() {
                self.catalog.end_scope();
            }
        }
        self.forget_part(kept.take());
        self.catalog.end_scope();
    }

    /// Does what was decided about one operation.
    fn conclude(
        &mut self,
        operation: &Operation,
        spot: Spot,
        cells: &mut [u64],
        verdict: &Verdict,
    ) {
        if let Target::Record { start } = operation.target {
            let is_committed = verdict.is_committed();
            return self.conclude_record(operation, start as usize, spot, cells, is_committed);
        }
        if let Target::Node { start } | Target::Subtree { start } = operation.target {
            let is_committed = verdict.is_committed();
            return self.conclude_node(operation, start, spot, cells, is_committed);
        }
        let Ok((part, arena)) = self.catalog.table(operation.table) else {
            return;
        };
        let place = match spot {
            Spot::Nowhere => return,
            Spot::Found(slot) => part.place(slot),
            Spot::Reserved(slot) => {
                let place = part.place(slot);
                if verdict.is_committed() {
                    part.confirm_row(arena, place);
                } else if !operation.is_clients_slot && !mutant::is(Mutant::InsertsKept) {
                    part.cancel_row(arena, place);
                }
                return;
            }
        };
        let width = Dynamic(part.columns());
        // A transaction that names a row in two ways may have deleted it already.
        if !verdict.is_committed() || !part.is_live(place) {
            return;
        }
        match operation.action {
            Action::Check => {}
            Action::Delete => part.delete(arena, place, &mut Together),
            Action::Update { start } | Action::Insert { start } | Action::Upsert { start } => {
                part.update(arena, width, place, &mut Together, |row| {
                    row.copy_from_slice(&cells[start as usize..][..row.len()]);
                });
            }
            Action::Set { start, count } => {
                part.update(arena, width, place, &mut Together, |row| {
                    for (column, value) in pairs(cells, start, count) {
                        row[column] = value;
                    }
                });
            }
        }
    }

    /// Takes a proposal on its way back.
    fn settle(&mut self, mut baton: Baton) {
        #[cfg(test)]
        watch::act_for(baton.author);
        if baton.is_last() && baton.purpose == Purpose::Commit {
            self.note_decision(&baton);
        }
        if baton.purpose == Purpose::Commit {
            self.conclude_part(&mut baton);
        }
        let step = baton.step;
        self.intents.release(std::mem::replace(
            &mut baton.parts[step].entry,
            EntryId::NONE,
        ));
        self.turn_back(baton);
    }

    /// Sends a proposal to the participant before this one; from the first one it goes home.
    fn turn_back(&mut self, mut baton: Baton) {
        baton.phase = Phase::Down;
        if baton.step > 0 {
            baton.step -= 1;
            self.send(baton);
        } else {
            self.go_home(baton);
        }
    }

    /// The end of a proposal's way: its client sees the verdicts.
    fn go_home(&mut self, mut baton: Baton) {
        // A shard that has ended may still ask for the decision, when its file is opened again.
        if let Some(ticket) = baton.ticket.take()
            && ticket.shard == self.index
            && !baton.is_broken
        {
            self.kept.give_back(ticket);
        }
        self.note_verdicts(baton.purpose, &baton.verdicts);
        drop(baton);
    }

    fn go_up(&mut self, mut baton: Baton) {
        baton.step += 1;
        self.send(baton);
    }

    fn send(&mut self, baton: Baton) {
        if let Err(baton) = self.outbox.send(baton) {
            self.pass_over(baton);
        }
    }

    /// Goes on with a proposal whose next shard has ended: back, and past it.
    fn pass_over(&mut self, mut baton: Baton) {
        while let Some(passed) = Outbox::past(baton) {
            baton = passed;
            if baton.shard() == self.index {
                return self.settle(baton);
            }
            match self.outbox.send(baton) {
                Ok(()) => return,
                Err(back) => baton = back,
            }
        }
    }

    /// Goes on with what was sent to shards that have ended.
    pub(crate) fn take_returned(&mut self) {
        for baton in self.outbox.returned() {
            self.pass_over(baton);
        }
        self.let_go_on();
    }

    /// Ends what has waited or been leased for too long.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        let mut next = NEVER;
        let entries: Vec<EntryId> = self.intents.all().collect();
        for entry in entries {
            let is_granted = self.intents.is_granted(entry);
            let Some(holder) = self.intents.holder(entry) else {
                continue;
            };
            let end = match holder {
                Holder::Leased { .. } if mutant::is(Mutant::LeaseEndless) => continue,
                Holder::Leased { until } => *until,
                Holder::Here(baton) if !is_granted => baton.deadline,
                Holder::Here(_) | Holder::Away | Holder::Guest { .. } => continue,
            };
            if now < end {
                next = next.min(end);
            } else if let Some(Holder::Here(mut baton)) = self.intents.release(entry) {
                baton.fail(&Error::TimedOut);
                self.turn_back(baton);
            }
        }
        self.next_expiry = next;
        self.let_go_on();
    }

    fn expect_until(&mut self, moment: u64) {
        self.next_expiry = self.next_expiry.min(moment);
    }
}

/// The end of the way up: what nothing speaks against is committed.
fn decide(baton: &mut Baton) {
    #[cfg(test)]
    watch::note_for(baton.author, What::Decided);
    for verdict in &mut baton.verdicts {
        if verdict.is_open() {
            *verdict = Verdict::Committed;
        }
    }
}

/// Whether a row is as its transaction expects it.
fn meets(
    part: &TablePart,
    place: Option<Place>,
    operation: &Operation,
    cells: &[u64],
) -> Result<(), Verdict> {
    let number = operation.number;
    let refused = |found| Verdict::Refused {
        operation: number,
        found,
    };
    let is_met = match (operation.expected, place) {
        (Expected::Any, _)
        | (Expected::Present, Some(_))
        | (Expected::Absent | Expected::StillAbsent, None) => true,
        (Expected::Present | Expected::Values { .. }, None) => {
            return Err(refused(Found::Nothing));
        }
        (Expected::Absent, Some(_)) => return Err(refused(Found::Row)),
        (Expected::Version { start }, Some(place)) => {
            let (slot, header) = part.version(place);
            let is_same = cells[start as usize..][..2] == [u64::from(slot), header];
            is_same || mutant::is(Mutant::VersionsUnchecked)
        }
        (Expected::Version { .. }, None) => false,
        (Expected::StillAbsent, Some(_)) => mutant::is(Mutant::AbsenceUnchecked),
        (Expected::Values { start, count }, Some(place)) => {
            let row = part.cells(Dynamic(part.columns()), place);
            let differs = pairs(cells, start, count).any(|(column, value)| row[column] != value);
            if differs && !mutant::is(Mutant::ConditionUnchecked) {
                return Err(refused(Found::Other));
            }
            true
        }
    };
    if is_met {
        Ok(())
    } else {
        Err(Verdict::Conflict(Cause::Changed))
    }
}

/// Columns and values, one pair after the other.
fn pairs(cells: &[u64], start: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    cells[start as usize..][..2 * count as usize]
        .chunks_exact(2)
        .map(|pair| (pair[0] as usize, pair[1]))
}
