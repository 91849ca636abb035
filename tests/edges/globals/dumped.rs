//! Dumps of globals: every node there and back, over other numbers of shards and by any routing.

use ancile::{Engine, GlobalKey, Number, Routing, Subscript, Verbs, key};

use super::super::database::{Place, settings};
use super::super::dump::{done, name, refused};
use super::super::support::Random;

/// Bytes of any kind: text, what is no UTF-8, and what looks like a number or nearly does.
fn bytes(random: &mut Random) -> Vec<u8> {
    const LIKE: [&str; 10] = [
        "",
        "0",
        "-0",
        "01",
        "1.50",
        ".5",
        "123456789012345678901",
        "{\"base64\":\"\"}",
        "Zürich\n\"\\\0\u{1}",
        "-9223372036854775809",
    ];
    match random.below(3) {
        0 => LIKE[random.below(10) as usize].into(),
        1 => vec![b'a' + random.below(26) as u8; random.below(40) as usize],
        _ => (0..random.below(40)).map(|_| random.next() as u8).collect(),
    }
}

fn subscript(random: &mut Random) -> Subscript<'static> {
    const EDGES: [i64; 6] = [0, -1, 1 << 53, (1 << 53) + 1, 999_999_999_999_999_999, -7];
    match random.below(4) {
        0 => EDGES[random.below(6) as usize].into(),
        1 => {
            let digits = random.below(1_000_000_000_000_000_000);
            let exponent = random.below(60) as i64 - 40;
            Number::parse(&format!("-{digits}e{exponent}"))
                .unwrap()
                .into()
        }
        _ => bytes(random).into(),
    }
}

fn random_key(random: &mut Random) -> GlobalKey {
    let mut names = bytes(random);
    names.push(random.next() as u8);
    let mut key = GlobalKey::new(names).unwrap();
    for _ in 0..random.below(6) {
        key.push(subscript(random)).unwrap();
    }
    key
}

const ROUTINGS: [Routing; 4] = [
    Routing::NameAndFirst,
    Routing::Prefix(0),
    Routing::Prefix(3),
    Routing::FullKey,
];

/// Each set with random nodes, with the last name that there can be, and a long value.
fn fill(engine: &Engine, random: &mut Random) {
    let mut session = engine.session().unwrap();
    for (number, routing) in ROUTINGS.into_iter().enumerate() {
        let store = engine.create_globals(&format!("set \"{number}"), routing);
        let store = store.unwrap();
        let mut globals = session.globals(&store);
        for _ in 0..1_500 {
            let value = bytes(random);
            globals.set(&random_key(random), value).unwrap();
        }
        let last = GlobalKey::new([0xff; 255]).unwrap();
        globals.set(&last, vec![0xfe; 300_000]).unwrap();
        let first = GlobalKey::new([0]).unwrap();
        globals.set(&first, "first").unwrap();
    }
}

#[test]
fn random_globals_go_through_dumps_with_other_numbers_of_shards_byte_by_byte() {
    let random = &mut Random::seeded();
    for shards in [1, 3] {
        let (from, to) = (Place::new("globals-from"), Place::new("globals-to"));
        let engine = settings().shards(shards).open(from.path()).unwrap();
        fill(&engine, random);
        engine.close().unwrap();
        let Some(first) = done(&["dump", name(from.path())], "") else {
            return;
        };
        let other = (4 - shards).to_string();
        let to_name = name(to.path());
        let load = ["load", to_name, "--shards", &other];
        let load = [&load[..], &["--arena-bytes", "67108864"]].concat();
        done(&load, &first).unwrap();
        let second = done(&["dump", to_name], "").unwrap();
        assert!(second == first);
        // The engine sees the same, too, whatever the text is.
        let nodes = |place: &Place, shards: usize| {
            let engine = settings().shards(shards).open(place.path()).unwrap();
            let mut session = engine.session().unwrap();
            let mut nodes = Vec::new();
            for (number, routing) in ROUTINGS.into_iter().enumerate() {
                let store = engine.open_globals(&format!("set \"{number}")).unwrap();
                assert_eq!(store.routing(), routing);
                let mut globals = session.globals(&store);
                let mut next = Some(GlobalKey::new([0]).unwrap());
                while let Some(name) = next {
                    let scanned = globals.scan(&name, |key, value| {
                        nodes.push((key.to_key().unwrap(), value.to_vec()));
                        std::ops::ControlFlow::Continue(())
                    });
                    scanned.unwrap();
                    next = globals.next(&name).unwrap();
                }
            }
            drop(session);
            engine.close().unwrap();
            nodes
        };
        let (before, after) = (nodes(&from, shards), nodes(&to, 4 - shards));
        assert!(before == after);
        assert_eq!(before.len() + ROUTINGS.len() + 1, first.lines().count());
    }
}

#[test]
fn a_dump_of_globals_is_readable_and_replaces_nothing_unasked() {
    let (place, copy) = (Place::new("globals-shown"), Place::new("globals-again"));
    let engine = settings().shards(2).open(place.path()).unwrap();
    let store = engine.globals().unwrap();
    let mut session = engine.session().unwrap();
    let half = Number::parse("-.5").unwrap();
    let key = key!["city", "AT", 1010, half, &[0xff_u8][..], ""].unwrap();
    session.globals(&store).set(&key, "Wien").unwrap();
    let key = GlobalKey::new("count").unwrap();
    session.globals(&store).set(&key, [0x80]).unwrap();
    drop(session);
    engine.close().unwrap();
    let Some(dump) = done(&["dump", name(place.path())], "") else {
        return;
    };
    let lines = [
        r#"{"table":"globals","schema":{"globals":{"routing":"name_and_first"}}}"#,
        r#"{"table":"globals","global":["city","AT",1010,"-.5",{"base64":"/w=="},""],"value":"Wien"}"#,
        r#"{"table":"globals","global":["count"],"value":{"base64":"gA=="}}"#,
        r#"{"end":{"rows":{"globals":2},"checksum":"7b33ca7f2de609f8"}}"#,
    ];
    assert_eq!(dump.lines().collect::<Vec<_>>(), lines);
    let csv = ["dump", name(place.path()), "--format", "csv"];
    let told = refused(&csv, "").unwrap();
    assert!(told.contains("--format jsonl"), "{told}");
    let load = ["load", name(copy.path()), "--shards", "1"];
    let load = [&load[..], &["--arena-bytes", "67108864"]].concat();
    done(&load, &dump).unwrap();
    let other = dump.replace("Wien", "Vienna");
    let load = [&load[..], &["--unchecked"]].concat();
    let told = refused(&load, &other).unwrap();
    assert!(
        told.contains("line 1") && told.contains("--upsert"),
        "{told}"
    );
    assert_eq!(done(&["dump", name(copy.path())], "").unwrap(), dump);
    done(&[&load[..], &["--upsert"]].concat(), &other).unwrap();
    let again = done(&["dump", name(copy.path())], "").unwrap();
    assert_eq!(again.lines().nth(1), other.lines().nth(1));
    assert_eq!(again.lines().nth(2), other.lines().nth(2));
    let routed = lines[0].replace("\"name_and_first\"", "{\"prefix\":2}");
    let told = refused(&load, &routed).unwrap();
    assert!(told.contains("another schema"), "{told}");
    let stat = done(&["stat", name(copy.path())], "").unwrap();
    assert!(stat.contains("table \"globals\": 2 rows"), "{stat}");
    assert!(stat.contains("routed by name and first"), "{stat}");
    // A head and three pages in each shard, of which one is the leaf.
    let says = "levels: 1; pages of 4 KiB: 4, of which 2 are free; leaves about ";
    assert!(stat.contains(says), "{stat}");
    let stat = done(&["stat", name(copy.path()), "--json"], "").unwrap();
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    let fill = stat["tables"][0]["tree"]["fill_percent"].as_u64().unwrap();
    assert!(fill < 10, "{stat}");
}

/// What a line has behind its table, and what is said about it.
const LINES: &[(&str, &str)] = &[
    (r#""global":[],"value":"x""#, "has no name"),
    (r#""global":[7],"value":"x""#, "line 2: the name"),
    (r#""global":[""],"value":"x""#, "line 2: "),
    (r#""global":["x",1.5],"value":"x""#, "subscript 1: 1.5"),
    (
        r#""global":["x","a",null],"value":"x""#,
        "subscript 2: null",
    ),
    (
        r#""global":["x",{"base64":"?"}],"value":"x""#,
        "is no Base64",
    ),
    (
        r#""global":["x",{"base65":""}],"value":"x""#,
        "is neither a string nor",
    ),
    (r#""global":["x"],"value":7"#, "line 2: the value"),
    (r#""global":["x"]"#, "line 2: this line has neither"),
    (r#""row":{}"#, "line 2: this line has neither"),
    (
        r#""global":["x"],"value":"","key":7"#,
        "neither \"row\" nor \"key\"",
    ),
];

#[test]
fn faults_in_a_dump_of_globals_are_told_with_their_line() {
    let place = Place::new("globals-faults");
    let load = ["load", name(place.path()), "--shards", "1"];
    let load = [&load[..], &["--arena-bytes", "67108864", "--unchecked"]].concat();
    let schema = r#"{"table":"g","schema":{"globals":{"routing":"full_key"}}}"#;
    for (line, says) in LINES {
        let dump = format!("{schema}\n{{\"table\":\"g\",{line}}}\n");
        let Some(told) = refused(&load, &dump) else {
            return;
        };
        assert!(told.contains("line 2") && told.contains(says), "{told}");
    }
    let dump = done(&["dump", name(place.path())], "").unwrap();
    assert_eq!(dump.lines().next(), Some(schema));
    assert_eq!(dump.lines().count(), 2);
}
