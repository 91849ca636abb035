//! A disk in memory that is as nasty as a real one may be.
//!
//! One [`Machine`] has any number of directories, so that a power cut meets all of them at once.
//! Every change of any of them is a *step*, every read a *read*; a fault can be planned at the n-th
//! of either. At a power cut each sector that was not synced is kept, lost, torn, or left at a
//! version in between, and each change of a name is kept or lost, as [`Loss`] says.
//!
//! A sync that fails has made some sectors durable and forgets the others: what is read afterwards
//! is what direct access would show, and a second sync succeeds without having written anything.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskError, DiskFile, SECTOR_BYTES};
use crate::id::hash;

type Sector = [u8; SECTOR_BYTES];

/// A seeded source of choices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices(Cell<u64>);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(hash(seed)))
    }

    /// A number below `bound`; zero if that is zero.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.set(hash(self.0.get()));
        self.0.get() % bound.max(1)
    }
}

/// A machine with its directories.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Mutex<State>>);

/// What a power cut does with what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// All of it is lost.
    Drop,
    /// All of it is kept.
    Keep,
    /// What came first is kept, up to a point chosen by the seed.
    Prefix,
    /// Each sector is kept, lost, torn or left at an earlier version, chosen by the seed.
    Torn,
}

/// What happens at a step or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The disk fails.
    Io,
    /// There is no space.
    NoSpace,
    /// The power is cut in the midst of it.
    PowerCut,
    /// A sync returns without having done anything; nothing else is affected.
    Lie,
    /// A write goes to another sector of the file; nothing else is affected.
    Misdirect,
}

#[derive(Clone, Default)]
struct State {
    files: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    names_durable: BTreeMap<String, u64>,
    names_pending: Vec<Naming>,
    steps: u64,
    reads: u64,
    at_steps: BTreeMap<u64, Fault>,
    at_reads: BTreeMap<u64, Fault>,
    /// How many lives the machine has had; handles of earlier ones are dead.
    life: u64,
    is_down: bool,
    choices: Choices,
    capacity: Option<u64>,
}

#[derive(Clone, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

/// One sector of one write.
#[derive(Clone)]
struct Pending {
    step: u64,
    sector: usize,
    content: Sector,
}

#[derive(Clone)]
struct Naming {
    step: u64,
    directory: String,
    change: Change,
}

#[derive(Clone)]
enum Change {
    Create(String, u64),
    Remove(String),
    Rename(String, String),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Self {
        let choices = Choices::new(seed);
        Self(Arc::new(Mutex::new(State {
            choices,
            ..State::default()
        })))
    }

    /// A directory, empty when it is first asked for.
    pub(crate) fn directory(&self, name: &str) -> Arc<dyn Disk> {
        let machine = self.clone();
        let prefix = format!("{name}/");
        Arc::new(SimulatedDisk { machine, prefix })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state().steps
    }

    pub(crate) fn reads(&self) -> u64 {
        self.state().reads
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state().is_down
    }

    /// Plans a fault `after` so many steps from now.
    pub(crate) fn plan(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.steps + after;
        state.at_steps.insert(at, fault);
    }

    /// Plans a fault `after` so many reads from now.
    pub(crate) fn plan_read(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.reads + after;
        state.at_reads.insert(at, fault);
    }

    /// Forgets all plans.
    pub(crate) fn plan_nothing(&self) {
        let mut state = self.state();
        state.at_steps.clear();
        state.at_reads.clear();
    }

    /// How many bytes all files together may have.
    pub(crate) fn limit(&self, capacity: Option<u64>) {
        self.state().capacity = capacity;
    }

    pub(crate) fn used(&self) -> u64 {
        self.state().used()
    }

    /// Cuts the power, and starts the machine again with what `loss` leaves.
    pub(crate) fn restart(&self, loss: Loss, seed: u64) {
        let mut state = self.state();
        state.choices = Choices::new(seed);
        let total = state.files.values().map(|file| file.pending.len() as u64);
        let total = total.sum::<u64>() + state.names_pending.len() as u64;
        let cut = state.choices.below(total + 1);
        let mut steps = state.pending_steps();
        steps.sort_unstable();
        let cut_step = steps.get(cut as usize).copied().unwrap_or(u64::MAX);
        let mut names = std::mem::take(&mut state.names_durable);
        for naming in std::mem::take(&mut state.names_pending) {
            let is_kept = match loss {
                Loss::Drop => false,
                Loss::Keep => true,
                Loss::Prefix => naming.step < cut_step,
                Loss::Torn => state.choices.below(2) == 0,
            };
            if is_kept {
                naming.change.apply(&mut names);
            }
        }
        let mut files = std::mem::take(&mut state.files);
        for file in files.values_mut() {
            let durable = state.left_by(loss, file, cut_step);
            *file = Inode {
                now: durable.clone(),
                durable,
                pending: Vec::new(),
            };
        }
        files.retain(|file, _| names.values().any(|named| named == file));
        state.files = files;
        state.names = names.clone();
        state.names_durable = names;
        state.at_steps.clear();
        state.at_reads.clear();
        state.is_down = false;
        state.life += 1;
    }

    /// Turns one bit of what is on the disk, if the file is that long.
    pub(crate) fn flip(&self, path: &str, offset: u64, bit: u8) {
        let mut state = self.state();
        let Some(file) = state.names.get(path).copied() else {
            return;
        };
        let file = state.files.get_mut(&file).unwrap();
        for copy in [&mut file.now, &mut file.durable] {
            if let Some(byte) = copy.get_mut(offset as usize) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// Puts `content` in a file's place.
    pub(crate) fn replace(&self, path: &str, content: &[u8]) {
        let mut state = self.state();
        let file = state.names[path];
        let file = state.files.get_mut(&file).unwrap();
        file.now = content.to_vec();
        file.durable = content.to_vec();
        file.pending.clear();
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        let state = self.state();
        state.files[&state.names[path]].now.clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// A machine in the same state, with a life of its own.
    pub(crate) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }
}

impl State {
    fn pending_steps(&self) -> Vec<u64> {
        let sectors = self.files.values().flat_map(|file| &file.pending);
        let names = self.names_pending.iter().map(|naming| naming.step);
        sectors.map(|pending| pending.step).chain(names).collect()
    }

    fn used(&self) -> u64 {
        self.files.values().map(|file| file.now.len() as u64).sum()
    }

    /// What of a file is on the disk after a power cut.
    fn left_by(&self, loss: Loss, file: &Inode, cut_step: u64) -> Vec<u8> {
        let mut left = file.durable.clone();
        let mut versions = BTreeMap::<usize, Vec<&Sector>>::new();
        for pending in &file.pending {
            let is_candidate = match loss {
                Loss::Drop => false,
                Loss::Keep | Loss::Torn => true,
                Loss::Prefix => {
                    pending.step < cut_step
                        || pending.step == cut_step && self.choices.below(2) == 0
                }
            };
            if is_candidate {
                let versions = versions.entry(pending.sector).or_default();
                versions.push(&pending.content);
            }
        }
        for (sector, versions) in versions {
            let chosen = match loss {
                Loss::Torn => self.choices.below(versions.len() as u64 + 1) as usize,
                _ => versions.len(),
            };
            let Some(last) = chosen.checked_sub(1) else {
                continue;
            };
            let start = sector * SECTOR_BYTES;
            if left.len() < start + SECTOR_BYTES {
                left.resize(start + SECTOR_BYTES, 0);
            }
            // A torn sector begins with the new bytes and ends with the older ones.
            let is_torn = loss == Loss::Torn && self.choices.below(4) == 0;
            let torn = if is_torn {
                self.choices.below(64) as usize * 8
            } else {
                SECTOR_BYTES
            };
            if let Some(older) = last.checked_sub(1) {
                left[start..start + SECTOR_BYTES].copy_from_slice(versions[older]);
            }
            left[start..start + torn].copy_from_slice(&versions[last][..torn]);
        }
        left
    }

    /// Counts a step, and says what is planned for it. `path` is what it is about.
    fn step(
        &mut self,
        life: u64,
        operation: &'static str,
        path: &str,
    ) -> Result<Option<Fault>, DiskError> {
        if self.is_down || self.life != life {
            return Err(failure(operation, path, "the power is off"));
        }
        self.steps += 1;
        match self.at_steps.remove(&self.steps) {
            Some(Fault::NoSpace) if operation != "sync" => {
                let file = path.to_owned();
                Err(DiskError::NoSpace { operation, file })
            }
            fault => Ok(fault),
        }
    }

    fn rename(&mut self, step: u64, directory: &str, change: Change) {
        change.apply(&mut self.names);
        let directory = directory.to_owned();
        self.names_pending.push(Naming {
            step,
            directory,
            change,
        });
    }

    /// A change of a name, with the faults that can meet it.
    fn change_name(
        &mut self,
        life: u64,
        operation: &'static str,
        directory: &str,
        path: &str,
        change: Change,
    ) -> Result<(), DiskError> {
        let fault = self.step(life, operation, path)?;
        let step = self.steps;
        match fault {
            Some(Fault::Io) => return Err(failure(operation, path, "planned failure")),
            Some(Fault::PowerCut) => {
                self.rename(step, directory, change);
                self.is_down = true;
                return Err(failure(operation, path, "the power was cut"));
            }
            _ => self.rename(step, directory, change),
        }
        Ok(())
    }
}

fn failure(operation: &'static str, path: &str, text: &str) -> DiskError {
    DiskError::Io {
        operation,
        file: path.to_owned(),
        source: std::io::Error::other(text.to_owned()),
    }
}

struct SimulatedDisk {
    machine: Machine,
    prefix: String,
}

impl SimulatedDisk {
    fn handle(&self, state: &State, path: String, file: u64) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile {
            machine: self.machine.clone(),
            path,
            file,
            life: state.life,
        })
    }
}

impl Disk for SimulatedDisk {
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        let path = self.path(name);
        let mut state = self.machine.state();
        if state.names.contains_key(&path) {
            return Err(DiskError::Exists { file: path });
        }
        let number = state.files.keys().next_back().map_or(1, |last| last + 1);
        let number = number.max(state.steps << 16);
        state.files.insert(number, Inode::default());
        let life = state.life;
        let change = Change::Create(path.clone(), number);
        state.change_name(life, "create", &self.prefix, &path, change)?;
        Ok(self.handle(&state, path, number))
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        let path = self.path(name);
        let state = self.machine.state();
        match state.names.get(&path) {
            Some(file) => Ok(self.handle(&state, path, *file)),
            None => Err(DiskError::NotFound { file: path }),
        }
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let path = self.path(name);
        let mut state = self.machine.state();
        if !state.names.contains_key(&path) {
            return Err(DiskError::NotFound { file: path });
        }
        let life = state.life;
        let change = Change::Remove(path.clone());
        state.change_name(life, "remove", &self.prefix, &path, change)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (from, to) = (self.path(from), self.path(to));
        let mut state = self.machine.state();
        if !state.names.contains_key(&from) {
            return Err(DiskError::NotFound { file: from });
        }
        let life = state.life;
        let change = Change::Rename(from.clone(), to);
        state.change_name(life, "rename", &self.prefix, &from, change)
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        let state = self.machine.state();
        let names = state.names.keys();
        Ok(names
            .filter_map(|path| path.strip_prefix(&self.prefix).map(str::to_owned))
            .collect())
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        let mut state = self.machine.state();
        let life = state.life;
        match state.step(life, "sync", &self.prefix)? {
            Some(Fault::Io | Fault::NoSpace) => {
                return Err(failure("sync", &self.prefix, "planned failure"));
            }
            Some(Fault::PowerCut) => {
                state.is_down = true;
                return Err(failure("sync", &self.prefix, "the power was cut"));
            }
            Some(Fault::Lie) => return Ok(()),
            _ => {}
        }
        let pending = std::mem::take(&mut state.names_pending);
        for naming in pending {
            if naming.directory == self.prefix {
                naming.change.apply(&mut state.names_durable);
            } else {
                state.names_pending.push(naming);
            }
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let state = self.machine.state();
        Ok(state
            .capacity
            .map_or(u64::MAX, |all| all.saturating_sub(state.used())))
    }
}

struct SimulatedFile {
    machine: Machine,
    path: String,
    file: u64,
    life: u64,
}

impl DiskFile for SimulatedFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let mut state = self.machine.state();
        if state.is_down || state.life != self.life {
            return Err(failure("read", &self.path, "the power is off"));
        }
        state.reads += 1;
        let reads = state.reads;
        if state.at_reads.remove(&reads).is_some() {
            return Err(failure("read", &self.path, "planned failure"));
        }
        let end = offset.saturating_add(into.len() as u64);
        let now = &state.files[&self.file].now;
        match now.get(offset as usize..end as usize) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => {
                let file = self.path.clone();
                return Err(DiskError::Short { file, end });
            }
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut state = self.machine.state();
        let fault = state.step(self.life, "write", &self.path)?;
        let (step, room) = (
            state.steps,
            state.capacity.map(|all| all.saturating_sub(state.used())),
        );
        let mut offset = offset as usize;
        let length = state.files[&self.file].now.len();
        if fault == Some(Fault::Misdirect) {
            offset = offset.saturating_sub(SECTOR_BYTES);
        }
        let end = offset + bytes.len();
        if room.is_some_and(|room| end.saturating_sub(length) as u64 > room) {
            let file = self.path.clone();
            let operation = "write";
            return Err(DiskError::NoSpace { operation, file });
        }
        let is_broken = fault == Some(Fault::Io);
        let part = if is_broken {
            state.choices.below(bytes.len() as u64) as usize / SECTOR_BYTES * SECTOR_BYTES
        } else {
            bytes.len()
        };
        state
            .files
            .get_mut(&self.file)
            .unwrap()
            .write(step, offset, &bytes[..part]);
        match fault {
            Some(Fault::PowerCut) => {
                state.is_down = true;
                Err(failure("write", &self.path, "the power was cut"))
            }
            Some(Fault::Io) => Err(failure("write", &self.path, "planned failure")),
            _ => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        let mut state = self.machine.state();
        let fault = state.step(self.life, "sync", &self.path)?;
        match fault {
            Some(Fault::PowerCut) => {
                state.is_down = true;
                return Err(failure("sync", &self.path, "the power was cut"));
            }
            Some(Fault::Io | Fault::NoSpace) => {
                let file = std::mem::take(state.files.get_mut(&self.file).unwrap());
                let durable = state.left_by(Loss::Torn, &file, u64::MAX);
                let now = durable.clone();
                let pending = Vec::new();
                let file = Inode {
                    now,
                    durable,
                    pending,
                };
                state.files.insert(self.file, file);
                return Err(failure("sync", &self.path, "planned failure"));
            }
            Some(Fault::Lie) => return Ok(()),
            _ => {}
        }
        let file = state.files.get_mut(&self.file).unwrap();
        file.pending.clear();
        file.durable.clone_from(&file.now);
        Ok(())
    }

    fn bytes(&self) -> Result<u64, DiskError> {
        Ok(self.machine.state().files[&self.file].now.len() as u64)
    }
}

impl Inode {
    fn write(&mut self, step: u64, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if self.now.len() < end {
            let more = end.next_multiple_of(SECTOR_BYTES) - self.now.len();
            self.now.extend_from_slice(&vec![0; more]);
        }
        self.now[offset..end].copy_from_slice(bytes);
        for sector in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let content = self.now[sector * SECTOR_BYTES..].first_chunk();
            self.pending.push(Pending {
                step,
                sector,
                content: *content.unwrap(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_outlives_every_loss_and_the_rest_goes_with_some() {
        for loss in [Loss::Drop, Loss::Keep, Loss::Prefix, Loss::Torn] {
            let mut lost = 0;
            for seed in 0..64 {
                let machine = Machine::new(seed);
                let disk = machine.directory("d");
                let mut file = disk.create("f").unwrap();
                file.write_at(0, &[1; 2048]).unwrap();
                file.sync().unwrap();
                disk.sync_directory().unwrap();
                file.write_at(512, &[2; 1024]).unwrap();
                disk.create("g").unwrap();
                machine.restart(loss, seed);
                let mut read = [0; 2048];
                disk.open("f").unwrap().read_at(0, &mut read).unwrap();
                assert!(read[..512].iter().chain(&read[1536..]).all(|b| *b == 1));
                lost += usize::from(read[512..1536] != [2; 1024] || disk.open("g").is_err());
            }
            let expected = match loss {
                Loss::Drop => 64..=64,
                Loss::Keep => 0..=0,
                _ => 1..=63,
            };
            assert!(expected.contains(&lost), "{loss:?}: {lost}");
        }
    }

    #[test]
    fn a_sync_that_failed_has_forgotten_what_it_did_not_write() {
        let is_lost = |seed| {
            let machine = Machine::new(seed);
            let disk = machine.directory("d");
            let mut file = disk.create("f").unwrap();
            disk.sync_directory().unwrap();
            file.write_at(0, &[1; 4096]).unwrap();
            machine.plan(1, Fault::Io);
            file.sync().unwrap_err();
            file.sync().unwrap();
            machine.restart(Loss::Keep, 0);
            machine.content("d/f") != [1; 4096]
        };
        assert!((0..16).any(is_lost));
    }
}
