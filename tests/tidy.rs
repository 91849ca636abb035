//! The walls of the house: who may name whom, where unsafe code lives, how files and folders look.
//! Comments and tests are not read. Paths are named one by one: `crate::{..}` is a breach.
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
/// Rooms of `src/`, and the rooms that they may name besides themselves.
const ROOMS: &str = "lib limits sync fork doorbell doc ->
    id collation -> limits
    error -> limits collation
    ring -> limits sync
    journal -> id limits error doorbell
    arena -> id limits error journal
    index tree -> id limits error arena
    table -> id limits error arena index tree collation
    transaction -> id limits error sync arena table journal
    shard -> id limits error doorbell ring arena index journal collation table transaction
    session -> id limits error fork ring journal collation table transaction shard
    writer -> id limits error journal shard
    engine simulation internals -> id limits error fork doorbell ring arena index tree collation journal table transaction shard session writer
    main command -> command";
/// Rooms that are stepped from outside, and the parts of `std` that they must therefore not name.
const STEPPED: &str = "index tree collation table transaction shard";
const OUTSIDE: [&str; 5] = ["time", "fs", "thread", "net", ""];
const TOP: &str = ". Cargo.toml Cargo.lock README.md LICENSE-MIT LICENSE-APACHE target \
    src topology capi benches scripts tests examples";

#[test]
fn the_house_is_tidy() {
    let (mut found, mut paths) = (vec![], vec![".".to_owned()]);
    while let Some(path) = paths.pop() {
        let entry = Path::new(env!("CARGO_MANIFEST_DIR")).join(&path);
        let is_run = fs::metadata(&entry).unwrap().permissions().mode() & 1 != 0;
        let name = path.trim_start_matches("./");
        if !name.contains('/') && !TOP.split(' ').any(|top| top == name) {
            found.push(format!("{name} does not belong to the top level"));
        } else if name.starts_with("scripts/") && !is_run {
            found.push(format!("{name} cannot be run"));
        } else if name.ends_with(".rs") {
            found.extend(breaches(name, &fs::read_to_string(entry).unwrap()));
        } else if entry.is_dir() && name != "target" {
            let names = fs::read_dir(entry).unwrap().map(|name| name.unwrap());
            let names = names.map(|name| name.file_name().into_string().unwrap());
            let names = names.filter(|name| !name.starts_with('.'));
            paths.extend(names.map(|name| format!("{path}/{name}")));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_breach_of_each_wall_is_found() {
    let cases = "src/ring/mod.rs|//!~use crate::arena::Arena;|crate::arena
src/id.rs|//!~#[cfg(test)]~mod test;~use crate::{Engine};|crate::
src/index/mod.rs|//!~use super::super::id;|climbs
src/shard/mod.rs|//!~use std::time::Instant;|std::time
src/kitchen.rs|//!|no walls
src/arena/map.rs|//!~unsafe { f() }|unfenced
topology/src/pin.rs|//!~use hwlocality::Topology;|hwlocality
benches/src/main.rs|fn main() {}|line 1
src/ring.rs|//! unsafe~use crate::limits; // crate::id~#[cfg(test)]~mod tests {~unsafe|";
    for case in cases.lines() {
        let case = Vec::from_iter(case.split('|'));
        let found = breaches(case[0], &case[1].replace('~', "\n")).join("\n");
        assert!(found.contains(case[2]) && found.is_empty() == case[2].is_empty());
    }
    assert!(breaches("tests/a.rs", &"\n".repeat(801))[0].contains("800"));
}

/// What is wrong with one source file.
fn breaches(path: &str, text: &str) -> Vec<String> {
    // Tests at a file's end, comments and the `$crate::` of macros are not the room's own doing.
    let end = text.find("\n#[cfg(test)]\nmod tests {");
    let bare = |line: &str| line.split("//").next().unwrap().replace("$crate::", "");
    let code = Vec::from_iter(text[..end.unwrap_or(text.len())].lines().map(bare)).join("\n");
    let mut found = vec![];
    let mut wall = |bad: bool, says: &str| found.extend(bad.then(|| format!("{path} {says}")));
    let (package, file) = path.split_once("src/").unwrap_or((path, ""));
    let (room, all) = (words(file)[0], words(&code));
    let fenced = text.replace(['\n', ' '], "").contains("#![expect(unsafe");
    let hwloc = all.contains(&"hwlocality") && !file.is_empty();
    wall(text.lines().count() > 800, "is over 800 lines");
    wall(!text.starts_with("//!"), "has no docs in line 1");
    wall(hwloc && path != "topology/src/hwloc.rs", "names hwlocality");
    wall(all.contains(&"unsafe") && !fenced, "has unfenced unsafe");
    if package.is_empty() && !file.ends_with("test.rs") && !file.ends_with("model.rs") {
        let mut rooms = ROOMS.lines().filter_map(|line| line.split_once("->"));
        let open = rooms.find(|(rooms, _)| words(rooms).contains(&room));
        wall(open.is_none(), "has no walls in tests/tidy.rs");
        for name in code.split("crate::").skip(1).map(|path| words(path)[0]) {
            let may = open.is_some_and(|(_, open)| words(open)[1..].contains(&name));
            wall(!may && name != room, &format!("names crate::{name}"));
        }
        for name in code.split("std::").skip(1).map(|path| words(path)[0]) {
            let bad = words(STEPPED).contains(&room) && OUTSIDE.contains(&name);
            wall(bad, &format!("names std::{name}"));
        }
        wall(code.contains("super::super::"), "climbs over the walls");
    }
    found
}

fn words(text: &str) -> Vec<&str> {
    Vec::from_iter(text.split(|c: char| c != '_' && !c.is_alphanumeric()))
}
