//! Damaged files of databases with journals, and files that are taken away or forbidden: whatever there
//! is, checking, reading, opening, going back and restoring give an answer.

use std::fs::{self, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use ancile::{Error, Journals, OpenError, Salvage, Schema, SurrogateId, Verbs};

use super::damage::{Victim, count_panics, damages, fill, read_all, write_some};
use super::database::{Place, settings};
use super::journals::{assert_same, copy, journaled, state};
use super::support::{Random, is_alone, watchdog};

fn victims(base: &Path) -> Vec<PathBuf> {
    let mut files = vec![base.join("MANIFEST")];
    for shard in ["shard-0000", "shard-0001"] {
        let entries = fs::read_dir(base.join(shard)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.sort_unstable();
    files
}

/// What came of damages.
#[derive(Debug, Default)]
struct Outcomes {
    noticed: u64,
    opened: u64,
    refused: u64,
}

impl Outcomes {
    /// Looks at a damaged database in all ways, and writes to a copy of it.
    fn try_all(&mut self, base: &Path, random: &mut Random) {
        let is_whole =
            ancile::check(base).is_ok_and(|report| report.is_whole() && report.harmless.is_empty());
        self.noticed += u64::from(!is_whole);
        match settings().pin(false).read_only(true).open(base) {
            Ok(engine) => {
                self.opened += 1;
                drop(read_all(&engine));
            }
            Err(_) => self.refused += 1,
        }
        if let Ok(mut salvage) = Salvage::open(base) {
            for table in salvage.tables() {
                drop(salvage.rows(&table.name, |_| ()));
            }
        }
        let oldest = Journals::read_only(base).and_then(|journals| {
            drop(journals.extract(.., |_| ControlFlow::Continue(())));
            journals.reach()
        });
        let copied = Place::new("ruined-copy");
        copy(base, copied.path());
        if let Ok(reach) = oldest
            && random.below(3) == 0
            && let Ok(journals) = Journals::open(copied.path())
        {
            let epochs = reach.newest.saturating_sub(reach.oldest) + 1;
            let epoch = reach.oldest + random.below(epochs);
            drop(journals.roll_back(epoch, None));
        }
        if let Ok(engine) = journaled().pin(false).must_exist(true).open(copied.path()) {
            drop(write_some(&engine, random));
            drop(read_all(&engine));
            drop(engine.close());
            drop(ancile::check(copied.path()));
        }
    }
}

#[test]
fn whatever_bytes_the_files_of_journals_have_they_are_checked_read_and_opened_without_a_panic() {
    if !is_alone() {
        return;
    }
    let _watchdog = watchdog(3_000);
    let random = &mut Random::seeded();
    let panics = count_panics();
    let (place, left) = (Place::new("ruined"), Place::new("ruined-unclosed"));
    let engine = journaled().open(place.path()).unwrap();
    fill(&engine);
    write_some(&engine, random).unwrap();
    engine.flush().unwrap();
    copy(place.path(), left.path());
    engine.close().unwrap();
    let rounds = damages(40);
    let mut outcomes = Outcomes::default();
    for base in [place.path(), left.path()] {
        let report = ancile::check(base).unwrap();
        assert!(report.is_whole(), "{report:?}");
        let files = victims(base);
        let all: Vec<Victim> = files.iter().map(|path| Victim::new(path)).collect();
        for round in 0..rounds {
            let random = &mut random.fork(round);
            let at = random.below(all.len() as u64) as usize;
            let (victim, path) = (&all[at], &files[at]);
            let whole = fs::read(path).unwrap();
            let told = match random.below(8) {
                0 => {
                    let length = random.below(whole.len() as u64 + 1) as usize;
                    fs::write(path, &whole[..length]).unwrap();
                    format!("cut to {length} bytes")
                }
                1 => {
                    fs::remove_file(path).unwrap();
                    "removed".to_owned()
                }
                _ if victim.has_content() => {
                    let changes = victim.damage(random);
                    format!("changed at {changes:?}")
                }
                _ => continue,
            };
            outcomes.try_all(base, random);
            let panicked = panics.load(Ordering::Relaxed);
            assert_eq!(panicked, 0, "round {round}: {} {told}", path.display());
            // Not by the open file: it may have been removed.
            fs::write(path, whole).unwrap();
        }
        let report = ancile::check(base).unwrap();
        assert!(report.is_whole(), "{report:?}");
    }
    println!("of {} damages: {outcomes:?}", 2 * rounds);
    assert!(outcomes.noticed > rounds / 4, "{outcomes:?}");
    assert!(outcomes.opened > rounds / 20, "{outcomes:?}");
    assert!(outcomes.refused > rounds / 20, "{outcomes:?}");
}

#[test]
fn database_whose_directory_is_removed_is_read_on_and_says_that_it_cannot_be_written() {
    let _watchdog = watchdog(300);
    let place = Place::new("removed");
    let engine = journaled().open(place.path()).unwrap();
    let table = engine.create_table::<[u64; 30]>("table", Schema::cells(30).keyed());
    let table = table.unwrap();
    let mut session = engine.session().unwrap();
    for key in 0..100 {
        session
            .insert_keyed(&table, SurrogateId(key), &[key; 30])
            .unwrap();
    }
    fs::remove_dir_all(place.path()).unwrap();
    let mut refused = Vec::new();
    for key in 0..60_000 {
        match session.upsert(&table, SurrogateId(key % 100), &[key % 100; 30]) {
            Ok(_) => refused.clear(),
            Err(error) => refused.push(error),
        }
        if refused.len() == 20 {
            break;
        }
    }
    let is_typed = |error: &Error| {
        matches!(
            error,
            Error::JournalFull | Error::JournalBroken | Error::NotDurable(_)
        )
    };
    assert_eq!(refused.len(), 20, "writing goes on into nothing");
    assert!(refused.iter().all(is_typed), "{refused:?}");
    for key in 0..100 {
        let row = session.select(&table, SurrogateId(key)).unwrap();
        assert_eq!(row, Some([key; 30]));
    }
    let copied = engine.backup(place.path().with_extension("backup"));
    assert!(copied.is_err());
    drop(session);
    // Whether what is nowhere could be closed is a matter of taste.
    drop(engine.close());
    assert!(!place.path().exists());
    println!("{}", refused[0]);
}

const READER: &str = "ANCILE_FORBIDDEN_DIRECTORY";

/// What somebody may do who may only read; in a process of such a user.
fn read_only_user(path: &Path) {
    let refused = journaled().must_exist(true).open(path).map(drop);
    assert!(
        matches!(refused, Err(OpenError::Directory { .. })),
        "{refused:?}"
    );
    let refused = Journals::open(path).map(drop);
    assert!(matches!(refused, Err(OpenError::Directory { .. })));
    let engine = settings().pin(false).read_only(true).open(path).unwrap();
    assert_eq!(state(&engine).len(), 3);
    engine.close().unwrap();
    assert!(ancile::check(path).unwrap().is_whole());
    assert!(
        !Journals::read_only(path)
            .unwrap()
            .reach()
            .unwrap()
            .epochs
            .is_empty()
    );
    let into = path.join("backup");
    assert!(ancile::backup(path, into, |_, _| ()).is_err());
    let hidden = path.with_extension("hidden");
    let refused = settings()
        .pin(false)
        .read_only(true)
        .open(&hidden)
        .map(drop);
    assert!(refused.is_err());
    assert!(ancile::check(&hidden).is_err());
}

fn set_modes(path: &Path, directory: u32, file: u32) {
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => set_modes(&entry.path(), directory, file),
            false => fs::set_permissions(entry.path(), Permissions::from_mode(file)).unwrap(),
        }
    }
    fs::set_permissions(path, Permissions::from_mode(directory)).unwrap();
}

#[test]
fn database_that_may_only_be_read_is_read_and_one_that_may_not_is_refused() {
    if let Some(path) = std::env::var_os(READER) {
        return read_only_user(Path::new(&path));
    }
    let _watchdog = watchdog(120);
    let place = Place::new("forbidden");
    let engine = journaled().open(place.path()).unwrap();
    fill(&engine);
    let there = state(&engine);
    engine.close().unwrap();
    let hidden = place.path().with_extension("hidden");
    copy(place.path(), &hidden);
    set_modes(place.path(), 0o555, 0o444);
    set_modes(&hidden.join("shard-0001"), 0o000, 0o000);
    let name = std::thread::current().name().unwrap().to_owned();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(READER, place.path());
    // What modes say does not hold for root.
    if is_root() {
        child.uid(65_534).gid(65_534);
    }
    let output = child.output();
    set_modes(place.path(), 0o755, 0o644);
    fs::set_permissions(hidden.join("shard-0001"), Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir_all(hidden).unwrap();
    match output {
        Err(error) => println!("skipped: no other user can run this program: {error}"),
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains("1 passed"), "{told}\n{errors}");
        }
    }
    let engine = journaled().open(place.path()).unwrap();
    assert_same(&state(&engine), &there, "after all");
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("Uid:"));
    line.unwrap().split_whitespace().nth(2) == Some("0")
}
