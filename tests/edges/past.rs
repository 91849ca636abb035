//! The commands of databases with journals: what they do, what they say, and what they refuse.

use std::fs;

use ancile::{Journals, Schema, SurrogateId, Verbs};
use serde_json::Value as Json;

use super::database::{Place, settings};
use super::dump::{ancile, done, name, refused};
use super::journals::journaled;
use super::support::watchdog;

/// A database with journals that says which state it is in, and the epoch at which each of three ended.
fn three_states(place: &Place) -> Vec<u64> {
    let engine = journaled().open(place.path()).unwrap();
    let table = engine
        .create_table::<[u64; 1]>("state", Schema::cells(1).keyed())
        .unwrap();
    let mut session = engine.session().unwrap();
    let mut epochs = Vec::new();
    for state in 1..=3 {
        session.upsert(&table, SurrogateId(0), &[state]).unwrap();
        epochs.push(engine.durable_epoch().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(session);
    engine.close().unwrap();
    epochs
}

fn state_of(place: &Place) -> u64 {
    let engine = journaled().open(place.path()).unwrap();
    let table = engine.open_table::<[u64; 1]>("state").unwrap();
    let found = engine.session().unwrap().select(&table, SurrogateId(0));
    let [state] = found.unwrap().unwrap();
    engine.close().unwrap();
    state
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

#[test]
fn rollback_lists_the_epochs_and_goes_back_to_one_or_to_a_time() {
    let _watchdog = watchdog(120);
    let place = Place::new("rollback");
    let epochs = three_states(&place);
    let path = name(place.path());
    let Some(listed) = done(&["rollback", path, "--list", "--json"], "") else {
        return;
    };
    let listed = json(&listed);
    assert_eq!(listed["newest"].as_u64(), Some(epochs[2]));
    let times = listed["epochs"].as_array().unwrap();
    let time_of = |epoch: u64| {
        let entry = times.iter().find(|entry| entry["epoch"] == epoch);
        entry.unwrap()["ended"].as_str().unwrap().to_owned()
    };
    let text = done(&["rollback", path, "--list"], "").unwrap();
    assert!(text.contains(&time_of(epochs[1])), "{text}");
    let lost = place.path().with_extension("lost");
    let told = done(
        &[
            "rollback",
            path,
            "--to",
            &time_of(epochs[1]),
            "--lost",
            name(&lost),
        ],
        "",
    );
    let told = told.unwrap();
    assert!(told.contains(&format!("to {}", epochs[1])), "{told}");
    assert_eq!(state_of(&place), 2);
    let lines = fs::read_to_string(&lost).unwrap();
    fs::remove_file(&lost).unwrap();
    let rows = lines
        .lines()
        .map(json)
        .filter(|line| line["part"] == "rows");
    let rows = Vec::from_iter(rows);
    assert!(!rows.is_empty(), "{lines}");
    assert!(
        rows.iter()
            .all(|row| row["table"] == "state" && row["row"] == 0)
    );
    let epoch = epochs[0].to_string();
    let told = done(&["rollback", path, "--to", &epoch, "--json"], "").unwrap();
    assert_eq!(json(&told)["to"].as_u64(), Some(epochs[0]));
    assert_eq!(state_of(&place), 1);
}

#[test]
fn rollback_refuses_what_is_out_of_reach_and_what_is_no_moment() {
    let _watchdog = watchdog(120);
    let place = Place::new("rollback-refused");
    three_states(&place);
    let path = name(place.path());
    let mapped = Place::new("rollback-mapped");
    settings().open(mapped.path()).unwrap().close().unwrap();
    for (to, says) in [
        ("99999999", "cannot be gone back to"),
        ("1971-01-01T00:00:00Z", "no epoch within reach had ended by"),
        ("@1000", "no epoch within reach had ended by"),
    ] {
        let Some(told) = refused(&["rollback", path, "--to", to], "") else {
            return;
        };
        assert!(told.contains(says), "{told}");
    }
    let told = refused(&["rollback", name(mapped.path()), "--to", "1"], "").unwrap();
    assert!(told.contains("no journals"), "{told}");
    for wrong in [
        &["rollback", path][..],
        &["rollback", path, "--to", "yesterday"],
        &["rollback", path, "--to", "1", "--list"],
    ] {
        let output = ancile(wrong, "").unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(state_of(&place), 3);
}

#[test]
fn extract_check_stat_and_recover_tell_of_journals() {
    let _watchdog = watchdog(120);
    let place = Place::new("tell");
    let epochs = three_states(&place);
    let path = name(place.path());
    let (from, to) = (epochs[1].to_string(), epochs[2].to_string());
    let Some(lines) = done(&["extract", path, "--from", &from, "--to", &to], "") else {
        return;
    };
    let lines = Vec::from_iter(lines.lines().map(json));
    assert!(lines.iter().any(|line| line["part"] == "rows"), "{lines:?}");
    let (first, last) = (epochs[1], epochs[2]);
    let is_within = |line: &Json| (first..=last).contains(&line["epoch"].as_u64().unwrap());
    assert!(lines.iter().all(is_within), "{lines:?}");
    let stat = done(&["stat", path], "").unwrap();
    assert!(
        stat.contains(&format!("at the end of epoch {}", epochs[2])),
        "{stat}"
    );
    let stat = json(&done(&["stat", path, "--json"], "").unwrap());
    assert_eq!(stat["durability"], "journals");
    assert_eq!(stat["reach"]["newest"].as_u64(), Some(epochs[2]));
    let journal = &stat["shards"][0]["journal"];
    assert!(journal["journal_bytes"].as_u64().unwrap() > 0, "{stat}");
    let told = done(&["recover", path], "").unwrap();
    assert!(
        told.contains(&format!("at the end of epoch {}", epochs[2])),
        "{told}"
    );
    let told = json(&done(&["check", path, "--json"], "").unwrap());
    assert_eq!(told["is_whole"], true);
    // A page of the image, one slot of a superblock, and the past.
    let image = place.path().join("shard-0000/image");
    let whole = fs::read(&image).unwrap();
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    fs::write(&image, damaged).unwrap();
    let output = ancile(&["check", path], "").unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("journal") && told.contains("checksum"),
        "{told}"
    );
    fs::write(&image, whole).unwrap();
    let superblock = place.path().join("shard-0000/superblock");
    let whole = fs::read(&superblock).unwrap();
    let mut damaged = whole.clone();
    let sequence = |at: usize| u64::from_le_bytes(whole[at + 48..][..8].try_into().unwrap());
    let older = if sequence(0) < sequence(4096) {
        0
    } else {
        4096
    };
    damaged[older + 60] ^= 1;
    fs::write(&superblock, damaged).unwrap();
    let told = done(&["check", path], "").unwrap();
    assert!(told.starts_with("harmless: shard 0, journal"), "{told}");
    fs::write(&superblock, whole).unwrap();
    let journals = Journals::open(place.path()).unwrap();
    let told = refused(&["extract", path], "").unwrap();
    assert!(told.contains("is open already"), "{told}");
    drop(journals);
}

#[test]
fn restore_makes_a_database_and_says_what_it_was() {
    let _watchdog = watchdog(120);
    let place = Place::new("restore");
    let epochs = three_states(&place);
    let (backup, to) = (
        place.path().with_extension("backup"),
        Place::new("restore-to"),
    );
    let (path, from, restored) = (name(place.path()), name(&backup), name(to.path()));
    if done(&["backup", path, from], "").is_none() {
        return;
    }
    let told = done(&["restore", from, restored, "--json"], "").unwrap();
    assert_eq!(json(&told)["epoch"].as_u64(), Some(epochs[2]));
    assert_eq!(state_of(&to), 3);
    let told = refused(&["restore", from, restored], "").unwrap();
    assert!(told.contains("is there already"), "{told}");
    fs::remove_file(backup.join("MANIFEST")).unwrap();
    fs::remove_dir_all(to.path()).unwrap();
    let told = refused(&["restore", from, restored], "").unwrap();
    assert!(told.contains("its making was interrupted"), "{told}");
    fs::remove_dir_all(backup).unwrap();
}
