//! What is whole of databases that cannot be opened any more, and what the commands say about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ancile::{OpenError, Salvage, Value};

use super::damage::{RECORDS, ROWS, fill, record};
use super::database::{Place, settings};
use super::dump::ancile;

fn arena(place: &Place, shard: usize) -> PathBuf {
    place.path().join(format!("shard-{shard:04}.arena"))
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes the files look as if the system had gone down while they were open.
fn tear(place: &Place) {
    for shard in 0..2 {
        let mut bytes = fs::read(arena(place, shard)).unwrap();
        bytes[64..68].copy_from_slice(&2_u32.to_le_bytes());
        bytes[72..88].fill(0xab);
        fs::write(arena(place, shard), bytes).unwrap();
    }
}

fn filled(name: &str) -> Place {
    let place = Place::new(name);
    let engine = settings().open(place.path()).unwrap();
    fill(&engine);
    engine.close().unwrap();
    place
}

/// The rows of each table that are saved, and why others are not.
fn saved(place: &Place) -> BTreeMap<String, (Vec<Vec<Value>>, Vec<String>)> {
    let mut salvage = Salvage::open(place.path()).unwrap();
    let tables = salvage.tables().into_iter();
    tables
        .map(|table| {
            let mut rows = Vec::new();
            let count = salvage
                .rows(&table.name, |row| rows.push(row.values))
                .unwrap();
            assert_eq!(count.rows, rows.len() as u64);
            let left = count.left_out.into_iter();
            let left = left.map(|(why, count)| format!("{why}: {count}"));
            (table.name, (rows, left.collect()))
        })
        .collect()
}

fn records_there() -> Vec<Vec<Value>> {
    let numbers = (0..RECORDS).filter(|number| number % 5 > 0);
    numbers.map(record).collect()
}

#[test]
fn database_that_was_open_when_the_system_went_down_is_saved_whole() {
    let place = filled("torn");
    tear(&place);
    for settings in [settings(), settings().read_only(true)] {
        let error = settings.open(place.path()).err().unwrap();
        assert!(matches!(error, OpenError::NeedsSalvage { .. }), "{error}");
    }
    let report = ancile::check(place.path()).unwrap();
    let torn = |finding: &ancile::Finding| finding.what.contains("when the system went down");
    assert!(report.findings.iter().all(torn), "{report:?}");
    assert_eq!(report.findings.len(), 2);
    let saved = saved(&place);
    assert!(saved.values().all(|(_, left)| left.is_empty()));
    assert_eq!(saved["plain"].0.len() as u64, ROWS - ROWS.div_ceil(3));
    assert_eq!(saved["keyed"].0.len() as u64, ROWS - ROWS.div_ceil(7));
    let (records, _) = &saved["records"];
    assert_eq!(records.len(), records_there().len());
    assert!(
        records_there()
            .iter()
            .all(|record| records.contains(record))
    );
    // Through the command, into a new database, which is as the old one was.
    let Some(output) = ancile(&["salvage", name(place.path())], "") else {
        return;
    };
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("rows saved"), "{told}");
    let dump = String::from_utf8(output.stdout).unwrap();
    let new = Place::new("saved");
    let load = [
        "load",
        name(new.path()),
        "--shards",
        "3",
        "--arena-bytes",
        "67108864",
    ];
    assert_eq!(ancile(&load, &dump).unwrap().status.code(), Some(0));
    let report = ancile::check(new.path()).unwrap();
    assert!(report.is_whole(), "{report:?}");
    let rows: Vec<u64> = report.tables.iter().map(|table| table.rows).collect();
    let expected = [
        saved["keyed"].0.len(),
        saved["plain"].0.len(),
        records.len(),
    ];
    assert_eq!(rows, expected.map(|rows| rows as u64));
}

#[test]
fn damaged_records_are_left_out_and_counted_and_all_others_are_saved() {
    let place = filled("half");
    let mut damaged = 0;
    for shard in 0..2 {
        let mut bytes = fs::read(arena(&place, shard)).unwrap();
        // The beginnings of some texts, which their rows have, too.
        let text = b"record 1";
        let places = bytes.windows(text.len()).enumerate();
        let places = places
            .filter(|(_, window)| window == text)
            .map(|(at, _)| at);
        for at in places.collect::<Vec<_>>() {
            // In a block of its own, behind its head; the row's own bytes are fewer.
            bytes[at] = b'R';
            damaged += 1;
        }
        fs::write(arena(&place, shard), bytes).unwrap();
    }
    assert!(damaged > 50, "{damaged}");
    let saved = saved(&place);
    let (records, left) = &saved["records"];
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(
        left[0].starts_with("records with damaged texts: "),
        "{left:?}"
    );
    let is_one = |record: &&Vec<Value>| matches!(&record[0], Value::Text(name) if name.starts_with("record 1"));
    let others: Vec<Vec<Value>> = records_there()
        .into_iter()
        .filter(|record| !is_one(&record))
        .collect();
    assert_eq!(records.len(), others.len());
    assert!(others.iter().all(|record| records.contains(record)));
    assert_eq!(saved["plain"].0.len() as u64, ROWS - ROWS.div_ceil(3));
    let Some(output) = ancile(&["salvage", name(place.path())], "") else {
        return;
    };
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("table \"records\": left out: records with damaged texts"),
        "{told}"
    );
}

#[test]
fn file_that_is_lost_costs_its_own_rows_only() {
    let place = filled("lost");
    fs::remove_file(arena(&place, 1)).unwrap();
    assert!(settings().open(place.path()).is_err());
    let saved = saved(&place);
    for (rows, left) in saved.values() {
        assert!(rows.len() > 100);
        assert_eq!(left, &["files that could not be opened: 1"]);
    }
    let report = ancile::check(place.path()).unwrap();
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.shard == 1 && finding.table.is_none())
    );
}

#[test]
fn check_says_in_its_exit_code_whether_a_database_is_whole() {
    let place = filled("checked");
    let check = |arguments: &[&str]| {
        let output = ancile(&[&["check"], arguments].concat(), "")?;
        let told = String::from_utf8(output.stdout).unwrap();
        Some((output.status.code(), told))
    };
    let path = name(place.path());
    let Some((code, told)) = check(&[path]) else {
        return;
    };
    assert_eq!(code, Some(0), "{told}");
    assert!(told.ends_with("rows: whole\n"), "{told}");
    let (code, told) = check(&[path, "--json"]).unwrap();
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &report["is_whole"]), (Some(0), &true.into()));
    let mut bytes = fs::read(arena(&place, 0)).unwrap();
    // Everywhere: some of it lies in pages of an ordered index where it is not in use.
    let text = b"record 1";
    let found = bytes.windows(text.len()).enumerate();
    let found: Vec<usize> = found
        .filter(|(_, window)| window == text)
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty());
    for at in found {
        bytes[at] = b'R';
    }
    fs::write(arena(&place, 0), bytes).unwrap();
    let (code, told) = check(&[path]).unwrap();
    assert_eq!(code, Some(1));
    assert!(told.contains("shard 0, table \"records\", slot "), "{told}");
    assert!(told.lines().last().unwrap().contains("findings"), "{told}");
    let (code, told) = check(&[path, "--json"]).unwrap();
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &report["is_whole"]), (Some(1), &false.into()));
    let findings = report["findings"].as_array().unwrap();
    let mut tables = findings.iter().map(|finding| &finding["table"]);
    assert!(tables.any(|table| table == "records"), "{told}");
    assert_eq!(check(&["/nowhere/at/all"]).unwrap().0, Some(2));
}
