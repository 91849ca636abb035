//! A process that forks: the child's copy of an engine gives errors and never waits; the parent, and
//! whoever comes after it, are not touched by it.

#![expect(unsafe_code, reason = "forking, and mounting, are system calls")]

use std::fs;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ancile::{Engine, Error, OpenError, Schema, SurrogateId, TableError, Verbs};

use super::database::{Place, settings};
use super::support::{Pair, is_alone, watchdog};

const KEY: SurrogateId = SurrogateId(7);

/// Runs something in a forked child, which then ends; whether all of it was true.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses nothing but its own memory, and ends without unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the system refuses to fork");
    if child == 0 {
        let result = catch_unwind(AssertUnwindSafe(work));
        let code = i32::from(!result.unwrap_or(false));
        // SAFETY: ends the child, whose test harness must not go on.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn forked_child_is_refused_at_every_door_and_its_parent_goes_on() {
    let _watchdog = watchdog(300);
    if !is_alone() {
        return;
    }
    let place = Place::new("fork");
    let engine = settings().open(place.path()).unwrap();
    let table = engine
        .create_table::<Pair>("t", Schema::cells(2).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    session.insert_keyed(&table, KEY, &[1, 1]).unwrap();
    let mut engine = Some(engine);
    for round in 0..20_u64 {
        let parent = engine.as_ref().unwrap();
        let task = parent.spawn(0, move |_| round).unwrap();
        let is_refused = in_child(|| {
            let forked = Error::Forked;
            let mut new = parent.session().unwrap();
            let transaction = session.transaction(|tx| tx.update(&table, KEY, &[9, 9]).map(drop));
            session.select(&table, KEY) == Err(forked.clone())
                && session.upsert(&table, KEY, &[9, 9]) == Err(forked.clone())
                && new.delete(&table, KEY) == Err(forked.clone())
                && transaction == Err(forked.clone())
                && parent.spawn(0, |_| ()).err() == Some(forked.clone())
                && parent.used_bytes().err() == Some(forked.clone())
                && parent.stats().err() == Some(forked.clone())
                && parent.drop_table("t") == Err(TableError::Forked)
                && task.join() == Err(forked)
        });
        assert!(is_refused, "round {round}");
        session.upsert(&table, KEY, &[round, 1]).unwrap();
    }
    // The child drops all that it has copied.
    let is_dropped = in_child(|| {
        drop(std::mem::replace(
            &mut session,
            engine.as_ref().unwrap().session().unwrap(),
        ));
        engine.take().unwrap().close() == Err(Error::Forked)
    });
    assert!(is_dropped);
    assert_eq!(session.select(&table, KEY), Ok(Some([19, 1])));
    drop(session);
    engine.unwrap().close().unwrap();
    let engine = settings().open(place.path()).unwrap();
    let table = engine.open_table::<Pair>("t").unwrap();
    let row = engine.session().unwrap().select(&table, KEY);
    assert_eq!(row, Ok(Some([19, 1])));
}

#[test]
fn child_that_lives_on_holds_no_lock_and_opens_what_its_parent_has_closed() {
    let _watchdog = watchdog(300);
    if !is_alone() {
        return;
    }
    let place = Place::new("fork-lock");
    let engine = settings().open(place.path()).unwrap();
    let (mut go, mut goes) = {
        let (goes, go) = std::io::pipe().unwrap();
        (Some(go), goes)
    };
    // A grandchild waits, with copies of all that is open, until the parent has opened again.
    let is_refused_first = in_child(|| {
        // SAFETY: as in `in_child`.
        if unsafe { libc::fork() } == 0 {
            drop(go.take());
            let _ = goes.read(&mut [0]);
            // SAFETY: as in `in_child`.
            unsafe { libc::_exit(0) };
        }
        matches!(settings().open(place.path()), Err(OpenError::InUse { .. }))
    });
    assert!(is_refused_first);
    engine.close().unwrap();
    let engine = settings().open(place.path()).unwrap();
    engine.close().unwrap();
    let is_opened = in_child(|| {
        let opened = settings().open(place.path());
        opened.is_ok_and(|engine| engine.close().is_ok())
    });
    assert!(is_opened, "a child opens an engine of its own");
    drop(go);
}

#[test]
fn two_opens_have_different_addresses_and_the_same_rows() {
    let place = Place::new("addresses");
    let path = place.path().to_owned();
    let mapped_at = |path: &std::path::Path| -> Vec<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let name = path.display().to_string();
        let lines = maps.lines().filter(|line| line.contains(&name));
        lines
            .map(|line| line.split('-').next().unwrap().to_owned())
            .collect()
    };
    let rows = 3_000_u64;
    let mut blockers: Vec<Engine> = Vec::new();
    let mut seen: Vec<Vec<String>> = Vec::new();
    for round in 0..3 {
        let engine = settings().open(&path).unwrap();
        let table = match round {
            0 => engine.create_table::<Pair>("t", Schema::cells(2).keyed()),
            _ => engine.open_table::<Pair>("t"),
        };
        let table = table.unwrap();
        let at = mapped_at(&path);
        assert_eq!(at.len(), 2, "one mapping a shard");
        assert!(
            seen.iter().flatten().all(|other| !at.contains(other)),
            "{at:?} {seen:?}"
        );
        seen.push(at);
        let mut session = engine.session().unwrap();
        for key in 0..rows * round {
            let row = session.select(&table, SurrogateId(key)).unwrap();
            assert_eq!(row, Some([key, key / rows]));
        }
        let keys: Vec<_> = (rows * round..rows * (round + 1))
            .map(SurrogateId)
            .collect();
        let new: Vec<Pair> = keys.iter().map(|key| [key.0, round]).collect();
        assert_eq!(
            session.insert_keyed_batch(&table, &keys, &new).unwrap(),
            keys.len()
        );
        drop(session);
        engine.close().unwrap();
        // Where it was, somebody else is now.
        blockers.push(settings().build().unwrap());
    }
}

/// A small file system in memory, gone with its value.
struct Mount(Place);

impl Mount {
    fn new(megabytes: u64) -> Option<Self> {
        let place = Place::new("mount");
        fs::create_dir(place.path()).unwrap();
        let path = std::ffi::CString::new(place.path().to_str().unwrap()).unwrap();
        let size = std::ffi::CString::new(format!("size={megabytes}m")).unwrap();
        let kind = c"tmpfs".as_ptr();
        // SAFETY: all arguments are strings that end.
        let mounted = unsafe { libc::mount(kind, path.as_ptr(), kind, 0, size.as_ptr().cast()) };
        (mounted == 0).then_some(Self(place))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: takes away our own mount, now or when its files are closed.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn full_file_system_refuses_inserts_loses_nothing_and_works_on_when_there_is_room() {
    let Some(mount) = Mount::new(24) else {
        println!(
            "skipped: mounting a file system needs a privilege that this process does not have"
        );
        return;
    };
    let place = mount.0.path().join("database");
    let ballast = mount.0.path().join("ballast");
    fs::write(&ballast, vec![1; 6 << 20]).unwrap();
    let engine = settings().open(&place).unwrap();
    let table = engine
        .create_table::<[u64; 32]>("t", Schema::cells(32).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    let row = |key: u64| [key; 32];
    let fill = |session: &mut ancile::Session, from: u64| {
        for key in from.. {
            match session.insert_keyed(&table, SurrogateId(key), &row(key)) {
                Ok(_) => {}
                Err(Error::ArenaFull(full)) => {
                    assert!(full.is_disk, "{full}");
                    return key;
                }
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("the file system has an end")
    };
    let first = fill(&mut session, 0);
    assert!(first > 1_000, "{first} rows fit");
    let full = session.transaction(|transaction| {
        for key in first..first + 20_000 {
            transaction.insert_keyed(&table, SurrogateId(key), &row(key))?;
        }
        Ok::<_, Error>(())
    });
    assert!(
        matches!(&full, Err(Error::ArenaFull(full)) if full.is_disk),
        "{full:?}"
    );
    assert_eq!(session.count(&table), Ok(first));
    // What is there can be changed, and deleted rows make room.
    assert!(session.update(&table, SurrogateId(3), &row(3)).unwrap());
    assert!(session.delete(&table, SurrogateId(4)).unwrap());
    assert!(!session.upsert(&table, SurrogateId(4), &row(4)).unwrap());
    fs::remove_file(&ballast).unwrap();
    let second = fill(&mut session, first);
    assert!(
        second > first + 1_000,
        "{second} rows fit, and {first} before"
    );
    drop(session);
    engine.close().unwrap();
    let engine = settings().open(&place).unwrap();
    let table = engine.open_table::<[u64; 32]>("t").unwrap();
    let mut session = engine.session().unwrap();
    assert_eq!(session.count(&table), Ok(second));
    for key in 0..second {
        assert_eq!(session.select(&table, SurrogateId(key)), Ok(Some(row(key))));
    }
    drop(session);
    engine.close().unwrap();
}
