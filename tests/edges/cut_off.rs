//! Dumps that were cut off, or are not as they were written: their end mark tells.

use std::fs;
use std::path::{Path, PathBuf};

use ancile::{Engine, FieldKind, RecordSchema, Schema, SurrogateId, Value, Verbs, key};

use super::database::{Place, settings};
use super::dump::{done, name, refused};
use super::support::Random;

/// A database with a table of each sort, and one without rows.
fn fill(engine: &Engine) {
    let mut session = engine.session().unwrap();
    let keyed = engine.create_table::<[u64; 1]>("keyed", Schema::cells(1).keyed());
    let keyed = keyed.unwrap();
    let fields = RecordSchema::new().field("name", FieldKind::Text);
    let records = engine.create_records_with("records", fields.key(&["name"]));
    let records = records.unwrap();
    let store = engine.globals().unwrap();
    for number in 0..20 {
        let row = [Value::Text(format!("no. {number}")); 1];
        session.records(&records).insert(&row.to_vec()).unwrap();
        let place = SurrogateId(number);
        session.insert_keyed(&keyed, place, &[number]).unwrap();
        let key = key!["node", number as i64].unwrap();
        session.globals(&store).set(&key, "value").unwrap();
    }
    let empty = Schema::cells(1);
    engine.create_table::<[u64; 1]>("empty", empty).unwrap();
}

/// The dump of such a database; none, if there is no command.
fn dump(place: &Place) -> Option<String> {
    let engine = settings().shards(2).open(place.path()).unwrap();
    fill(&engine);
    engine.close().unwrap();
    done(&["dump", name(place.path())], "")
}

fn load<'a>(place: &'a Place, more: &[&'a str]) -> Vec<&'a str> {
    let load = ["load", name(place.path()), "--shards", "1"];
    let load = [&load[..], &["--arena-bytes", "67108864"], more];
    load.concat()
}

/// A file that is gone afterwards.
struct Written(PathBuf);

impl Written {
    fn new(beside: &Place, content: &str) -> Self {
        let path = beside.path().with_extension("jsonl");
        fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn end_mark_counts_the_rows_of_each_table() {
    let place = Place::new("cut-mark");
    let Some(dump) = dump(&place) else { return };
    let mark = dump.lines().last().unwrap();
    let says = r#"{"end":{"rows":{"empty":0,"globals":20,"keyed":20,"records":20},"checksum":""#;
    assert!(mark.starts_with(says), "{mark}");
    // The checksum is the one that other programs know by this name.
    let known = "123456789\n{\"end\":{\"rows\":{},\"checksum\":\"0\"}}";
    let file = Written::new(&place, known);
    let told = refused(&load(&place, &["--from", name(file.path())]), "").unwrap();
    assert!(told.contains("its checksum is b1c5a9eaa5c625f7"), "{told}");
}

#[test]
fn file_that_was_cut_off_anywhere_is_refused_before_anything_is_loaded() {
    let random = &mut Random::seeded();
    let (from, to) = (Place::new("cut-file"), Place::new("cut-file-to"));
    let Some(dump) = dump(&from) else { return };
    let end = dump.trim_end().len();
    let mut cuts = vec![0, 1, end - 1, dump.trim_end().rfind('\n').unwrap() + 1];
    cuts.extend((0..12).map(|_| random.below(end as u64) as usize));
    for cut in cuts {
        let file = Written::new(&from, &dump[..cut]);
        let told = refused(&load(&to, &["--from", name(file.path())]), "").unwrap();
        assert!(told.contains("nothing of"), "{told}");
        assert!(!to.path().exists(), "cut at {cut}");
    }
    // Only the last line feed is not missed.
    let file = Written::new(&from, &dump[..end]);
    done(&load(&to, &["--from", name(file.path())]), "").unwrap();
}

#[test]
fn file_that_was_changed_is_refused_and_loaded_unchecked() {
    let random = &mut Random::seeded();
    let (from, to) = (Place::new("cut-changed"), Place::new("cut-changed-to"));
    let Some(dump) = dump(&from) else { return };
    let lines: Vec<&str> = dump.lines().collect();
    for _ in 0..8 {
        // A line is lost, is there twice, or has changed its place.
        let mut other = lines.clone();
        let at = random.below(lines.len() as u64 - 2) as usize;
        match random.below(3) {
            0 => drop(other.remove(at)),
            1 => other.insert(at, lines[at]),
            _ => other.swap(at, at + 1),
        }
        let file = Written::new(&from, &other.join("\n"));
        let told = refused(&load(&to, &["--from", name(file.path())]), "").unwrap();
        assert!(told.contains("not as it was written"), "{told}");
        assert!(!to.path().exists());
    }
    let other = dump.replace("no. 7", "no. 77");
    let file = Written::new(&from, &other);
    let from_file = ["--from", name(file.path())];
    refused(&load(&to, &from_file), "").unwrap();
    let unchecked = [&from_file[..], &["--unchecked"]].concat();
    done(&load(&to, &unchecked), "").unwrap();
    let loaded = done(&["dump", name(to.path()), "--table", "records"], "");
    assert!(loaded.unwrap().contains("no. 77"));
}

#[test]
fn input_that_is_cut_off_is_told_with_what_is_loaded_then() {
    let from = Place::new("cut-input");
    let Some(dump) = dump(&from) else { return };
    let (whole, mark) = dump.trim_end().rsplit_once('\n').unwrap();
    // All rows wait to be sent when the input ends: none is loaded.
    let to = Place::new("cut-input-to");
    let told = refused(&load(&to, &[]), whole).unwrap();
    let says = "ancile: the dump was cut off: it has no end mark\n";
    assert_eq!(told, says);
    // Some are sent before.
    let (schema, row) = (
        r#"{"table":"t","schema":{"rows":{"keyed":true,"columns":[{"name":"a","kind":"u64"}]}}}"#,
        |key: u64| format!("{{\"table\":\"t\",\"key\":{key},\"row\":{{\"a\":1}}}}\n"),
    );
    let many: String = (0..1_500).map(row).collect();
    let told = refused(&load(&to, &[]), &format!("{schema}\n{many}")).unwrap();
    let says = "the load ended with 1024 rows of \"t\" loaded: the dump was cut off";
    assert!(told.contains(says), "{told}");
    let rows = done(&["dump", name(to.path()), "--table", "t"], "").unwrap();
    assert_eq!(rows.lines().count(), 1 + 1_024 + 1);
    // What the end mark counts is told by table.
    let less = whole.replacen(
        "{\"table\":\"records\",\"row\":{\"name\":\"no. 3\"}}\n",
        "",
        1,
    );
    assert_ne!(less, whole);
    let told = refused(&load(&to, &[]), &format!("{less}\n{mark}\n")).unwrap();
    let says = "19 rows of table \"records\" are here, and its end mark says 20";
    assert!(told.contains(says), "{told}");
}

#[test]
fn dumps_may_follow_each_other_and_an_empty_database_has_a_dump() {
    let (from, none) = (Place::new("cut-first"), Place::new("cut-none"));
    let Some(first) = dump(&from) else { return };
    settings()
        .shards(1)
        .open(none.path())
        .unwrap()
        .close()
        .unwrap();
    let empty = done(&["dump", name(none.path())], "").unwrap();
    assert!(empty.starts_with("{\"end\":{\"rows\":{},"), "{empty}");
    let to = Place::new("cut-both");
    let both = format!("{empty}\n{first}{empty}");
    done(&load(&to, &[]), &both).unwrap();
    let marks = |dump: &str| {
        dump.lines()
            .last()
            .map(|mark| mark.split_once("checksum").unwrap().0.to_owned())
    };
    let again = done(&["dump", name(to.path())], "").unwrap();
    assert_eq!(marks(&again), marks(&first));
    let file = Written::new(&from, &both.replace('\n', "\r\n"));
    let upsert = ["--upsert", "--append", "--from", name(file.path())];
    done(&load(&to, &upsert), "").unwrap();
    let open = format!("{first}{}", first.lines().next().unwrap());
    let told = refused(&load(&to, &["--upsert"]), &open).unwrap();
    assert!(told.contains("the dump was cut off"), "{told}");
    let told = refused(&load(&to, &[]), "").unwrap();
    assert!(told.contains("the dump was cut off"), "{told}");
}
