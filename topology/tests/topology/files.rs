//! Every file of the collection gives the counts of the index, and damaged ones one clear line.

use std::path::Path;

use ancile_topology::{Machine, MachineError, NumberSet, Plan, Policy, Report};

#[cfg(feature = "hwloc")]
use crate::collection::Unpacked;
use crate::collection::{Row, archives, rows, shared};
use crate::process::{describe, run};

/// Files and columns in which we differ from hwloc's own listing, and why.
const KNOWN: [(&str, &str, &str); 8] = [
    (
        "xml/64intel64-3g2n+2n-irregulargroups+pci.xml",
        "packages",
        PACKAGES_OF_DEVICES,
    ),
    (
        "sysfs/40intel64-4n10c+pci-conflicts.tar.bz2",
        "packages",
        CONFLICTS,
    ),
    (
        "sysfs/64intel64-fakeKNL-SNC4-hybrid.tar.bz2",
        "numa_without_cpu",
        FAST_MEMORY,
    ),
    (
        "sysfs/64intel64-fakeKNL-SNC4-hybrid.tar.bz2",
        "pus_in_several_nodes",
        FAST_MEMORY,
    ),
    (
        "sysfs/fakeheterocpunuma.tar.bz2",
        "numa_with_memory",
        OVERLAP,
    ),
    (
        "sysfs/fakeheterocpunuma.tar.bz2",
        "numa_without_cpu",
        OVERLAP,
    ),
    (
        "sysfs/fakeheterocpunuma.tar.bz2",
        "numa_incl_disallowed",
        OVERLAP,
    ),
    ("sysfs/fakeheterocpunuma.tar.bz2", "pus_in_no_node", OVERLAP),
];
const PACKAGES_OF_DEVICES: &str = "hwloc lists packages of which only the devices may be used";
const CONFLICTS: &str = "hwloc drops a package that conflicts with caches; we keep it";
const FAST_MEMORY: &str = "hwloc knows by processor model where nodes without PUs belong";
const OVERLAP: &str = "hwloc drops nodes that overlap others in part; we keep what the kernel says";

/// What differs between a machine and its row of the index.
fn differences(machine: &Machine, row: &Row) -> Vec<String> {
    let counts = machine.counts();
    let seen: NumberSet = machine.pus.iter().map(|pu| pu.os_index).collect();
    let pairs = [
        ("packages", counts.packages),
        ("numa_with_memory", counts.nodes_with_memory),
        ("numa_without_memory", counts.nodes_without_memory),
        ("numa_without_cpu", counts.nodes_without_pus),
        ("numa_incl_disallowed", machine.numa_nodes.len()),
        ("cores", counts.cores),
        ("pus", counts.pus),
        ("allowed_pus", machine.allowed_pus.len()),
        ("pus_incl_disallowed", seen.len()),
        ("pus_in_no_node", counts.pus_in_no_node),
        ("pus_in_several_nodes", counts.pus_in_several_nodes),
        (
            "max_pu_os_index",
            machine.allowed_pus.iter().last().unwrap_or(0) as usize,
        ),
    ];
    let known = |column: &str| {
        KNOWN
            .iter()
            .any(|known| (known.0, known.1) == (row.file.as_str(), column))
    };
    let unequal = pairs
        .into_iter()
        .filter(|(column, got)| (row.number(column) != *got) != known(column));
    let mut found: Vec<String> = unequal
        .map(|(column, got)| format!("{}: {column} is {got}, not {}", row.file, row.text(column)))
        .collect();
    if machine.allowed_pus.contains(0) != (row.text("has_pu_os_index_0") == "y") {
        found.push(format!("{}: PU 0", row.file));
    }
    found
}

#[test]
fn every_xml_file_has_the_counts_of_the_index() {
    let Some(root) = shared("topologies") else {
        return;
    };
    let rows = rows(&root, &["xml", "xml-v1", "xml-derived", "xml-export"]);
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let machine =
            Machine::from_xml(root.join(&row.file)).unwrap_or_else(|error| panic!("{error}"));
        assert!(!machine.is_this_system);
        wrong.extend(differences(&machine, row));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Layouts of the virtual machines: packages, nodes, nodes without PUs, cores, PUs.
const LAYOUTS: [(&str, [usize; 5]); 12] = [
    ("blocks", [2, 2, 0, 8, 16]),
    ("cxl", [2, 3, 0, 8, 16]),
    ("four", [4, 4, 0, 8, 16]),
    ("memless", [2, 1, 0, 8, 16]),
    ("nosmt", [2, 2, 0, 8, 8]),
    ("offline", [2, 2, 0, 6, 12]),
    ("single", [1, 1, 0, 1, 1]),
    ("snc", [2, 4, 0, 8, 16]),
    ("sparse", [2, 2, 0, 8, 16]),
    ("t710", [2, 2, 0, 8, 16]),
    ("uma", [2, 1, 0, 8, 16]),
    ("uma14", [1, 1, 0, 7, 14]),
];

#[test]
fn every_layout_of_the_virtual_machines_has_its_counts() {
    let Some(root) = shared("topologies/lab") else {
        return;
    };
    for (name, expected) in LAYOUTS {
        let machine = Machine::from_xml(root.join(format!("{name}.xml"))).unwrap();
        let counts = machine.counts();
        let got = [
            counts.packages,
            counts.nodes_with_memory + counts.nodes_without_memory,
            counts.nodes_without_pus,
            counts.cores,
            counts.pus,
        ];
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn every_archive_of_kernel_files_has_the_counts_of_the_index() {
    let Some(root) = shared("topologies") else {
        return;
    };
    let rows = rows(&root, &["sysfs"]);
    let mut wrong = Vec::new();
    for (name, machine) in archives() {
        let row = rows
            .iter()
            .find(|row| row.file == *name)
            .expect("a row of its own");
        wrong.extend(differences(machine, row));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[cfg(feature = "hwloc")]
#[test]
fn every_archive_of_cpuid_values_has_the_counts_of_the_index() {
    let Some(root) = shared("topologies") else {
        return;
    };
    for row in rows(&root, &["cpuid"]) {
        let Some(unpacked) = Unpacked::new(&root.join(&row.file)) else {
            continue;
        };
        let mut command = describe(&["json"]);
        command
            .env("HWLOC_CPUID_PATH", &unpacked.path)
            .env("HWLOC_COMPONENTS", "x86,stop");
        let report = run(command).report();
        assert_eq!(differences(&report.machine, &row), Vec::<String>::new());
        assert!(!report.plan.is_this_system, "{}", row.file);
    }
}

#[test]
fn xml_of_version_3_is_refused_in_one_line_that_says_what_to_do() {
    let Some(root) = shared("topologies") else {
        return;
    };
    for row in rows(&root, &["xml-v3-must-refuse"]) {
        let error = Machine::from_xml(root.join(&row.file)).unwrap_err();
        assert!(matches!(error, MachineError::TooNew { .. }), "{error:?}");
        one_line(&error, &["version 3.0", "versions up to 2", "hwloc 2"]);
    }
}

#[test]
fn damaged_files_are_refused_in_one_line_and_nothing_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("empty.xml", "", "is not XML"),
        ("words.xml", "this is no XML", "is not XML"),
        (
            "cut.xml",
            "<?xml version=\"1.0\"?><topology version=\"2.0\"><object",
            "is not XML",
        ),
        ("html.xml", "<html><body/></html>", "root element is `html`"),
        (
            "bare.xml",
            "<topology version=\"2.0\"/>",
            "holds no machine",
        ),
        (
            "odd.xml",
            "<topology version=\"2.0\"><object type=\"Cat\"/></topology>",
            "holds no machine",
        ),
    ];
    for (name, text, expected) in cases {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output = run(describe(&["text", "xml", path.to_str().unwrap()]));
        assert_eq!(output.code, Some(1), "{name}");
        assert_eq!(
            output.errors.lines().count(),
            1,
            "{name}: {}",
            output.errors
        );
        assert!(
            output.errors.contains(expected),
            "{name}: {}",
            output.errors
        );
    }
    std::fs::write(directory.path().join("bytes.xml"), [0xff, 0xfe, 0, 1]).unwrap();
    let error = Machine::from_xml(directory.path().join("bytes.xml")).unwrap_err();
    one_line(&error, &["is not XML"]);
    let error = Machine::from_xml(directory.path().join("none.xml")).unwrap_err();
    one_line(&error, &["none.xml", "No such file"]);
    let error = Machine::from_xml(directory.path()).unwrap_err();
    one_line(&error, &["cannot read"]);
}

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// The text with one attribute's value changed or one line gone or doubled.
fn damaged(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = random.below(lines.len());
    let values = [
        "",
        "0",
        "-1",
        "x",
        "99999999999999",
        "0xf...f",
        "0x00000001,,0x0",
        "PU",
        "NUMANode",
    ];
    match random.below(4) {
        0 => {
            lines.remove(at);
        }
        1 => lines.insert(at, lines[random.below(lines.len())]),
        _ => {
            let quotes: Vec<usize> = text.match_indices('"').map(|(place, _)| place).collect();
            let pair = random.below(quotes.len() / 2) * 2;
            let (start, end) = (quotes[pair] + 1, quotes[pair + 1]);
            return [
                &text[..start],
                values[random.below(values.len())],
                &text[end..],
            ]
            .concat();
        }
    }
    lines.join("\n")
}

#[test]
fn files_damaged_at_random_give_an_error_or_a_plan_and_never_a_panic() {
    let Some(root) = shared("topologies") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.xml");
    let names = [
        "lab/cxl.xml",
        "xml/16amd64-8n2c-cpusets.xml",
        "xml-v1/8ia64-2n2s2c+1n.v1.xml",
    ];
    for (seed, name) in (1..=150).zip(names.iter().cycle()) {
        println!("seed {seed}, {name}");
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let mut text = std::fs::read_to_string(root.join(name)).unwrap();
        for _ in 0..=random.below(4) {
            text = damaged(&text, &mut random);
        }
        std::fs::write(&path, text).unwrap();
        match Machine::from_xml(&path) {
            Ok(machine) => {
                let plan = Plan::new(&machine, &Policy::count(14)).expect("every machine has a PU");
                assert_eq!(plan.seats.len(), 14);
                let report = Report::new(machine, plan);
                assert!(!report.to_text().is_empty() && report.to_svg().ends_with("</svg>\n"));
            }
            Err(error) => one_line(&error, &["damaged.xml"]),
        }
    }
}

#[cfg(feature = "hwloc")]
#[test]
fn descriptions_that_make_no_machine_are_refused_in_one_line() {
    for text in [
        "",
        "cat:2",
        "pack:0 pu:2",
        "pack:-1",
        "pu",
        "pack:2 [numa(memory=8M)] pu:2\0",
        "numa:1 pu:99999999999",
        "pack:9000 [numa] core:9000 pu:1",
    ] {
        let error = Machine::from_synthetic(text).unwrap_err();
        one_line(&error, &["pack:2"]);
    }
}

#[test]
fn directories_without_a_machine_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    one_line(
        &Machine::from_sysfs(directory.path()).unwrap_err(),
        &["holds no machine"],
    );
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    one_line(
        &Machine::from_sysfs(&file).unwrap_err(),
        &["not a directory"],
    );
    one_line(
        &Machine::from_sysfs(Path::new("/no/such/place")).unwrap_err(),
        &["No such file"],
    );
}

#[cfg(not(feature = "hwloc"))]
#[test]
fn inputs_that_need_hwloc_say_so_without_it() {
    one_line(
        &Machine::from_synthetic("pu:2").unwrap_err(),
        &["needs hwloc"],
    );
}

fn one_line(error: &MachineError, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}
