//! Dumps: every row there and back, over other numbers of shards; what is wrong told with its line.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ancile::{Engine, FieldKind, Kind, RecordSchema, Schema, SurrogateId, Timestamp, Value, Verbs};

use super::database::{Place, settings};
use super::support::Random;

/// The command with some input, where this build has it.
pub(super) fn ancile(arguments: &[&str], input: &str) -> Option<Output> {
    let Some(program) = option_env!("CARGO_BIN_EXE_ancile") else {
        println!("skipped: this build has no command");
        return None;
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env_remove("ANCILE_SHARDS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // The command may end before it has read all.
    let writes = std::thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writes.join().unwrap();
    Some(output)
}

/// What the command wrote, once it has done what it was to do.
pub(super) fn done(arguments: &[&str], input: &str) -> Option<String> {
    let output = ancile(arguments, input)?;
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*errors),
        (Some(0), ""),
        "{arguments:?}"
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// What the command said when it could not.
pub(super) fn refused(arguments: &[&str], input: &str) -> Option<String> {
    let output = ancile(arguments, input)?;
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("ancile: "), "{errors}");
    Some(errors)
}

pub(super) fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn text(random: &mut Random) -> String {
    const LETTERS: [char; 9] = ['a', ',', '"', '\n', '\r', 'ß', '\u{0}', ' ', '\\'];
    let length = [0, 1, 5, 15, 16, 40, 3_000][random.below(7) as usize];
    (0..length)
        .map(|_| LETTERS[random.below(9) as usize])
        .collect()
}

fn number(random: &mut Random) -> u64 {
    let edges = [
        0,
        1,
        1 << 53,
        (1 << 53) + 1,
        u64::MAX,
        1 << 63,
        random.next(),
    ];
    edges[random.below(7) as usize]
}

fn float(random: &mut Random) -> f64 {
    let edges = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1];
    match random.below(8) {
        7 => f64::from_bits(random.next()),
        6 => 1.0 / random.next() as f64,
        edge => edges[edge as usize],
    }
}

fn record(key: u64, random: &mut Random) -> Vec<Value> {
    let mut record = vec![Value::Text(format!("{key},\"{}", text(random)))];
    for optional in [false, true] {
        let values = [
            Value::U64(number(random)),
            Value::I64(number(random).cast_signed()),
            Value::F64(float(random)),
            Value::Bool(random.below(2) > 0),
            Value::Timestamp(Timestamp {
                micros: number(random).cast_signed(),
            }),
            Value::Text(text(random)),
            Value::Bytes(text(random).into_bytes()),
        ];
        record.extend(values.into_iter().map(|value| {
            if optional && random.below(3) == 0 {
                Value::Nothing
            } else {
                value
            }
        }));
    }
    record
}

const KINDS: [FieldKind; 7] = [
    FieldKind::U64,
    FieldKind::I64,
    FieldKind::F64,
    FieldKind::Bool,
    FieldKind::Timestamp,
    FieldKind::Text,
    FieldKind::Bytes,
];

/// A database with a table of each sort, random rows in each.
fn fill(engine: &Engine, random: &mut Random) {
    let schema = RecordSchema::new().field("name", FieldKind::Text);
    let schema = KINDS.iter().fold(schema, |schema, kind| {
        schema.field(&format!("{kind:?}"), *kind)
    });
    let schema = KINDS.iter().fold(schema, |schema, kind| {
        schema.optional(&format!("{kind:?}, \"?"), *kind)
    });
    let schema = schema.key(&["name"]).hash_index("text", &["Text", "Bool"]);
    let schema = schema.unique_index("unique", &["name", "U64, \"?"]);
    let records = engine.create_records_with("records", schema).unwrap();
    let columns = || {
        Schema::new()
            .column("@key", Kind::U64)
            .column("i", Kind::I64)
            .column("f", Kind::F64)
            .column("t", Kind::Timestamp)
    };
    let keyed = engine
        .create_table::<Vec<u64>>("keyed \"rows\"", columns().keyed())
        .unwrap();
    let plain = engine.create_table::<Vec<u64>>("plain", columns()).unwrap();
    let empty = RecordSchema::new().field("a", FieldKind::U64).key(&["a"]);
    engine.create_records_with("empty", empty).unwrap();
    let mut session = engine.session().unwrap();
    let row = |random: &mut Random| {
        vec![
            number(random),
            number(random),
            float(random).to_bits(),
            number(random),
        ]
    };
    for key in 0..1_500 {
        session
            .records(&records)
            .insert(&record(key, random))
            .unwrap();
        let key = SurrogateId(random.next());
        session.upsert(&keyed, key, &row(random)).unwrap();
        session.insert(&plain, &row(random)).unwrap();
    }
}

/// The lines of a dump, without the places where rows lay, and without the end mark.
fn lines(dump: &str) -> BTreeSet<String> {
    let (dump, mark) = dump.trim_end().rsplit_once('\n').unwrap();
    assert!(mark.starts_with("{\"end\":"), "{mark}");
    let lines = dump.lines().enumerate().map(|(number, line)| {
        let Some((before, rest)) = line.split_once("\"id\":") else {
            return line.to_owned();
        };
        let (_, behind) = rest.split_once(',').unwrap();
        // Rows without keys may be the same: they are told apart by how many there are.
        let _ = number;
        format!("{before}{behind}")
    });
    lines.collect()
}

#[test]
fn random_databases_go_through_dumps_with_other_numbers_of_shards() {
    let random = &mut Random::seeded();
    for shards in [1, 3] {
        let (from, to) = (Place::new("dump-from"), Place::new("dump-to"));
        let engine = settings().shards(shards).open(from.path()).unwrap();
        fill(&engine, random);
        engine.close().unwrap();
        let Some(first) = done(&["dump", name(from.path())], "") else {
            return;
        };
        let other = (4 - shards).to_string();
        let load = ["load", name(to.path()), "--shards", &other];
        let told = done(
            &[&load[..], &["--arena-bytes", "67108864"]].concat(),
            &first,
        )
        .unwrap();
        assert!(
            told.contains("table \"records\": 1500 rows loaded"),
            "{told}"
        );
        let second = done(&["dump", name(to.path())], "").unwrap();
        assert_eq!(first.lines().count(), 4 + 4_500 + 1);
        assert_eq!(second.lines().count(), 4 + 4_500 + 1);
        let (first_lines, second_lines) = (lines(&first), lines(&second));
        assert!(first_lines == second_lines);
        // The same as comma-separated values, table by table, into another database.
        let csv = Place::new("dump-csv");
        for table in ["records", "keyed \"rows\"", "plain", "empty"] {
            let dump = [
                "dump",
                name(from.path()),
                "--table",
                table,
                "--format",
                "csv",
            ];
            let dumped = done(&dump, "").unwrap();
            let file = from.path().with_extension("csv");
            fs::write(&file, &dumped).unwrap();
            let load = [
                "load",
                name(csv.path()),
                "--shards",
                "2",
                "--from",
                name(&file),
            ];
            done(&[&load[..], &["--arena-bytes", "67108864"]].concat(), "").unwrap();
            fs::remove_file(&file).unwrap();
        }
        let third = done(&["dump", name(csv.path())], "").unwrap();
        assert_eq!(third.lines().count(), 4 + 4_500 + 1);
        assert!(lines(&third) == first_lines);
        let stat = done(&["stat", name(csv.path())], "").unwrap();
        assert!(stat.contains("2 shards, 4 tables"), "{stat}");
        assert!(stat.contains("table \"records\": 1500 rows"), "{stat}");
        let stat = done(&["stat", name(csv.path()), "--json"], "").unwrap();
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        assert_eq!(stat["tables"][3]["rows"], 1500);
        assert_eq!(stat["shards"].as_array().unwrap().len(), 2);
    }
}

const SCHEMA: &str = r#"{"table":"t","schema":{"records":{"fields":[{"name":"k","kind":"u64","optional":false},{"name":"t","kind":"text","optional":true}],"key":["k"],"indexes":[]}}}"#;

/// Lines that are wrong, and what is said about them.
const LINES: &[(&str, &str)] = &[
    (r#"{"table":"t","row":{"k":1}}"#, "line 3 is not loaded"),
    (
        r#"{"table":"t","row":{"k":-1}}"#,
        "line 3: field \"k\" cannot be \"-1\"",
    ),
    (
        r#"{"table":"t","row":{"k":1.5}}"#,
        "line 3: field \"k\" cannot be",
    ),
    (
        r#"{"table":"t","row":{"k":"1"}}"#,
        "line 3: field \"k\" is of kind",
    ),
    (
        r#"{"table":"t","row":{"k":null}}"#,
        "line 3: field \"k\" is of kind",
    ),
    (
        r#"{"table":"t","row":{"t":"x"}}"#,
        "line 3: field \"k\" is missing",
    ),
    (r#"{"table":"t","row":{"k":3,"x":1}}"#, "has no field \"x\""),
    (
        r#"{"table":"u","row":{"k":3}}"#,
        "line 3: the schema of table \"u\"",
    ),
    (
        r#"{"table":"t","key":3,"row":{"k":3}}"#,
        "line 3: table \"t\" is not keyed",
    ),
    (r#"{"table":"t"}"#, "line 3: this line has neither"),
    (
        r#"{"table":"t","row":{"k":3}"#,
        "line 3: this is no line of a dump",
    ),
    ("nonsense", "line 3: this is no line of a dump"),
];

/// The same, of comma-separated values.
const CSV: &[(&str, &str)] = &[
    ("k,t\n4,a\n4,b\n", "line 3 is not loaded"),
    ("k,t\n\"5\n", "line 2: a quotation mark is not closed"),
    ("k,t\nx,\n", "line 2: field \"k\" cannot be \"x\""),
    ("k,t\n,\n", "line 2: field \"k\" is empty"),
    ("k,t\n6\n", "line 2: 1 values for 2 columns"),
    ("k,u\n", "line 1: table \"t\" has no field \"u\""),
    ("t\nx\n", "line 2: there is no column \"k\""),
    ("k,k\n", "line 1: column \"k\" is there twice"),
    ("", "the dump is empty"),
];

#[test]
fn faults_of_a_dump_are_told_with_their_line_and_nothing_is_replaced_unasked() {
    let place = Place::new("load");
    let load = [
        "load",
        name(place.path()),
        "--shards",
        "1",
        "--arena-bytes",
        "67108864",
        "--unchecked",
    ];
    let first = format!("{SCHEMA}\n{}\n", r#"{"table":"t","row":{"k":1,"t":"old"}}"#);
    if done(&load, &first).is_none() {
        return;
    }
    for (line, says) in LINES {
        let dump = format!("{SCHEMA}\n\n{line}\n");
        let told = refused(&load, &dump).unwrap();
        assert!(told.contains(says), "{told}");
    }
    let other = SCHEMA.replace("\"optional\":true", "\"optional\":false");
    let told = refused(&load, &other).unwrap();
    assert!(told.contains("another schema"), "{told}");
    let again = format!("{SCHEMA}\n{}\n", r#"{"table":"t","row":{"k":1,"t":"new"}}"#);
    done(&[&load[..], &["--upsert"]].concat(), &again).unwrap();
    let csv = "k,t\n2,\n3,\"\"\n";
    let load_csv = [&load[..], &["--format", "csv", "--table", "t"]].concat();
    done(&load_csv, csv).unwrap();
    for (csv, says) in CSV {
        let told = refused(&load_csv, csv).unwrap();
        assert!(told.contains(says), "{told}");
    }
    let dump = done(&["dump", name(place.path())], "").unwrap();
    let mut lines: Vec<&str> = dump.lines().collect();
    assert!(
        lines
            .pop()
            .unwrap()
            .starts_with("{\"end\":{\"rows\":{\"t\":4},")
    );
    lines[1..].sort_unstable();
    let rows = [
        r#"{"table":"t","row":{"k":1,"t":"new"}}"#,
        r#"{"table":"t","row":{"k":2,"t":null}}"#,
        r#"{"table":"t","row":{"k":3,"t":""}}"#,
        r#"{"table":"t","row":{"k":4,"t":"a"}}"#,
    ];
    assert_eq!(lines, [&[SCHEMA][..], &rows].concat());
}

#[test]
fn what_cannot_be_dumped_or_shown_is_said_in_one_line() {
    let place = Place::new("nowhere");
    let Some(told) = refused(&["stat", name(place.path())], "") else {
        return;
    };
    assert!(told.contains(name(place.path())), "{told}");
    assert!(told.contains("could not be opened"), "{told}");
    assert!(!place.path().exists());
    let told = refused(&["load", "/dev/null/nowhere"], "").unwrap();
    assert_eq!(told.matches("os error").count(), 1, "{told}");
    let engine = settings().open(place.path()).unwrap();
    engine
        .create_table::<[u64; 1]>("t", Schema::cells(1))
        .unwrap();
    let told = refused(&["dump", name(place.path())], "").unwrap();
    assert!(told.contains("is open already, in process"), "{told}");
    engine.close().unwrap();
    let told = refused(&["dump", name(place.path()), "--table", "u"], "").unwrap();
    assert!(
        told.contains("there is no table \"u\"; there are: t"),
        "{told}"
    );
    let file = place.path().with_extension("jsonl");
    let output = ["dump", name(place.path()), "--output", name(&file)];
    done(&output, "").unwrap();
    let told = refused(&output, "").unwrap();
    assert!(told.contains("could not be made"), "{told}");
    fs::remove_file(file).unwrap();
    let help = done(&["dump", "--help"], "").unwrap();
    assert!(
        help.contains("Exit codes") && help.contains("Base64"),
        "{help}"
    );
}
