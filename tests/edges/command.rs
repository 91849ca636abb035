//! The `ancile` command on wrong input: one line, an exit code, and nothing of anybody else's.

use std::fs;
use std::process::{Command, Output};

use super::support::Random;

/// A machine that hwloc can read, to be damaged.
const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
    <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2" local_memory="1073741824"/>
    <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3"/>
    <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4"/>
  </object>
</topology>
"#;

/// The command, where this build has it.
fn ancile(arguments: &[&str]) -> Option<Output> {
    let Some(program) = option_env!("CARGO_BIN_EXE_ancile") else {
        println!("skipped: this build has no command");
        return None;
    };
    let output = Command::new(program)
        .args(arguments)
        .env_remove("ANCILE_SHARDS")
        .output();
    Some(output.unwrap())
}

fn errors(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn more_shards_than_an_engine_may_have_are_refused_with_their_number() {
    for shards in ["1025", "99999", "4294967296", "0"] {
        let Some(output) = ancile(&["topology", "--shards", shards]) else {
            return;
        };
        assert_eq!(output.status.code(), Some(2), "{shards}");
        assert!(output.stdout.is_empty(), "{shards}");
        let text = errors(&output);
        assert!(text.contains("1..=1024"), "{text}");
    }
    let output = ancile(&["topology", "--synthetic", "pu:1", "--shards", "1024"]).unwrap();
    assert_eq!((output.status.code(), errors(&output)), (Some(0), ""));
    let output = ancile(&[
        "topology",
        "--synthetic",
        "[numa(memory=99000000000)] core:1025 pu:1",
    ])
    .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("at most 1024 shards"), "{text}");
}

#[test]
fn damaged_files_give_one_line_or_a_plan_and_nothing_else_is_printed() {
    let random = &mut Random::seeded();
    let path = std::env::temp_dir().join(format!("ancile-damaged-{}.xml", std::process::id()));
    let name = path.to_str().unwrap();
    let mut refused = 0;
    for round in 0..60 {
        let mut bytes = XML.as_bytes().to_vec();
        let at = random.below(bytes.len() as u64) as usize;
        match round % 3 {
            0 => bytes.truncate(at),
            1 => bytes[at] = random.next() as u8,
            _ => drop(bytes.splice(at..at, *b"\"<>0xffffffff,,")),
        }
        fs::write(&path, &bytes).unwrap();
        let Some(output) = ancile(&["topology", "--input", name]) else {
            return;
        };
        let text = errors(&output);
        match output.status.code() {
            Some(0) => assert_eq!(text, ""),
            Some(2) => {
                assert_eq!(text.lines().count(), 1, "{text}");
                assert!(
                    text.starts_with("ancile: ") && output.stdout.is_empty(),
                    "{text}"
                );
                refused += 1;
            }
            code => panic!("{code:?}: {text}"),
        }
    }
    fs::remove_file(&path).unwrap();
    assert!(refused > 20, "{refused} of 60 damages were noticed");
}
