//! The book (`src/doc`) and the readme, compared with what they tell of: commands are run, names, drawings
//! and versions looked up in the source. Snippets of Rust are doctests; limits are compared in `src/limits.rs`.
//!
//! A block that is marked `sh` has commands behind `$ ` (a line that begins with `> ` goes on with one) and
//! what they show, errors too; `...` stands for any text, alone in its line for any lines. A command of
//! which nothing is shown has to succeed. The blocks of a document follow each other in one directory, which
//! has a database with journals, `ledger`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ancile::{Durability, Engine, Schema, SurrogateId, Verbs};

/// A document: its name and its text.
struct Document {
    name: String,
    text: String,
}

/// A block between fences, with the line before it that is not empty.
struct Block {
    kind: String,
    before: String,
    lines: Vec<String>,
}

/// A command, and what the document says that it shows.
struct Example {
    command: String,
    shown: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<Document> {
    let chapters = fs::read_dir(root().join("src/doc")).unwrap();
    let mut paths: Vec<PathBuf> = chapters.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    paths.sort();
    paths.push(root().join("README.md"));
    let read = |path: PathBuf| Document {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(&path).unwrap(),
    };
    paths.into_iter().map(read).collect()
}

fn chapter(name: &str) -> Document {
    let found = documents()
        .into_iter()
        .find(|document| document.name == name);
    found.unwrap()
}

impl Document {
    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut is_inside, mut before) = (false, String::new());
        for line in self.text.lines() {
            if let Some(kind) = line.strip_prefix("```") {
                is_inside = !is_inside;
                if is_inside {
                    blocks.push(Block {
                        kind: kind.to_owned(),
                        before: before.clone(),
                        lines: Vec::new(),
                    });
                }
            } else if is_inside {
                blocks.last_mut().unwrap().lines.push(line.to_owned());
            } else if !line.trim().is_empty() {
                line.clone_into(&mut before);
            }
        }
        blocks
    }

    fn examples(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        for block in self.blocks().iter().filter(|block| block.kind == "sh") {
            for line in &block.lines {
                if let Some(command) = line.strip_prefix("$ ") {
                    examples.push(Example {
                        command: command.to_owned(),
                        shown: Vec::new(),
                    });
                    continue;
                }
                let example = examples.last_mut().expect("a block begins with a command");
                match line.strip_prefix("> ") {
                    Some(more) => example.command += &format!("\n{more}"),
                    None => example.shown.push(line.clone()),
                }
            }
        }
        examples
    }

    /// What is between single backticks, outside of blocks.
    fn quoted(&self) -> Vec<String> {
        let mut is_inside = false;
        let mut quoted = Vec::new();
        for line in self.text.lines() {
            is_inside ^= line.starts_with("```");
            if !is_inside && !line.starts_with("```") {
                let parts = line.split('`').skip(1).step_by(2);
                quoted.extend(parts.map(ToOwned::to_owned));
            }
        }
        quoted
    }
}

/// Whether a text is what is written, where `...` stands for anything.
fn fits(written: &str, text: &str) -> bool {
    match written.split_once("...") {
        None => written == text,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|text| {
            let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            let mut rests = starts.map(|at| &text[at..]);
            rests.any(|text| fits(rest, text))
        }),
    }
}

/// As [`fits`], for lines: `...` alone stands for any of them.
fn all_fit(written: &[String], lines: &[&str]) -> bool {
    match (written.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "..." => {
            (0..=lines.len()).any(|skipped| all_fit(rest, &lines[skipped..]))
        }
        (Some((first, rest)), Some((line, lines))) => fits(first, line) && all_fit(rest, lines),
        _ => false,
    }
}

/// The database with journals that the book's commands are shown with: three accounts, then one less.
fn make_ledger(directory: &Path) {
    let engine = Engine::builder()
        .shards(2)
        .pin(false)
        .arena_bytes(16 << 20)
        .journal_segment_bytes(1 << 20)
        .durability(Durability::Commit)
        .open(directory.join("ledger"))
        .unwrap();
    let schema = Schema::cells(1).keyed();
    let accounts = engine.create_table::<[u64; 1]>("accounts", schema).unwrap();
    let mut session = engine.session().unwrap();
    for key in 1..=3 {
        let made = session.insert_keyed(&accounts, SurrogateId(key), &[100 * key]);
        made.unwrap();
    }
    let before = engine.durable_epoch().unwrap();
    // An epoch of its own, so that there is one to go back to.
    while engine.durable_epoch().unwrap() == before {
        session.upsert(&accounts, SurrogateId(3), &[300]).unwrap();
    }
    let was = engine.durable_epoch().unwrap();
    fs::write(directory.join("EPOCH"), was.to_string()).unwrap();
    assert!(session.delete(&accounts, SurrogateId(2)).unwrap());
    drop(session);
    engine.close().unwrap();
}

#[test]
fn every_command_of_the_book_does_and_shows_what_is_written() {
    let Some(program) = option_env!("CARGO_BIN_EXE_ancile") else {
        println!("skipped: this build has no command");
        return;
    };
    let found = Path::new(program).parent().unwrap().to_str().unwrap();
    let path = format!("{found}:{}", std::env::var("PATH").unwrap_or_default());
    let (mut wrong, mut run) = (String::new(), 0);
    for document in documents() {
        let examples = document.examples();
        if examples.is_empty() {
            continue;
        }
        let name = format!("ancile-book-{}-{}", document.name, std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        make_ledger(&directory);
        for Example { command, shown } in examples {
            let output = Command::new("sh")
                .args(["-c", &format!("exec 2>&1\n{command}")])
                .current_dir(&directory)
                .env("PATH", &path)
                .env("LC_ALL", "C")
                .env_remove("ANCILE_SHARDS")
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let is_right = match shown.is_empty() {
                true => output.status.success(),
                false => all_fit(&shown, &lines),
            };
            if !is_right {
                let name = &document.name;
                let _ = write!(wrong, "\n{name}: $ {command}\n{text}{}\n", output.status);
            }
            run += 1;
        }
        fs::remove_dir_all(&directory).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(run >= 25, "only {run} commands were found");
}

/// Whether a quoted text looks like a name of the code: `Type`, `Type::method`, `method()`, `snake_case`.
fn is_name(text: &str) -> bool {
    let bare = text.trim_end_matches("()");
    let is_word = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(char::is_alphabetic)
            && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
    };
    let is_marked = text != bare
        || bare.contains(['_', ':'])
        || bare.chars().any(|letter| letter.is_uppercase());
    is_marked && bare.split("::").all(is_word)
}

/// All words of the sources, but for those of this file.
fn words() -> HashSet<String> {
    let mut words = HashSet::new();
    let mut paths = vec!["src", "tests", "topology/src"];
    paths.reverse();
    let mut paths: Vec<PathBuf> = paths.into_iter().map(|path| root().join(path)).collect();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with(file!()) {
            let text = fs::read_to_string(path).unwrap();
            let apart = |letter: char| letter != '_' && !letter.is_alphanumeric();
            words.extend(text.split(apart).map(ToOwned::to_owned));
        }
    }
    words
}

#[test]
fn every_name_and_every_path_in_the_book_is_there() {
    let words = words();
    let (mut missing, mut looked_up) = (Vec::new(), 0);
    for document in documents() {
        for quoted in document.quoted() {
            let is_path = ["src/", "tests/", "scripts/", "examples/", "benches/"]
                .iter()
                .any(|begin| quoted.starts_with(begin));
            let is_there = if is_path {
                let path = quoted.split(' ').next().unwrap_or_default();
                root().join(path).exists()
            } else if is_name(&quoted) {
                let bare = quoted.trim_end_matches("()");
                bare.split("::").all(|word| words.contains(word))
            } else {
                continue;
            };
            looked_up += 1;
            if !is_there {
                missing.push(format!("{}: {quoted}", document.name));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}\n", missing.join("\n"));
    assert!(looked_up > 200, "only {looked_up} names were found");
    assert!(!words.contains(&["No", "Such", "Type"].concat()));
}

#[test]
fn every_drawing_of_the_format_is_that_of_its_source() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for block in chapter("format").blocks() {
        if block.kind != "text" {
            continue;
        }
        let path = block
            .before
            .split('`')
            .find(|part| part.starts_with("src/"));
        let path = path.unwrap_or_else(|| panic!("no source is named by {:?}", block.before));
        let source = fs::read_to_string(root().join(path)).unwrap();
        let docs = source.lines().filter_map(|line| line.strip_prefix("//!"));
        let docs: Vec<&str> = docs
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        if !docs
            .windows(block.lines.len())
            .any(|part| part == block.lines)
        {
            wrong.push(format!(
                "{path} draws something else than {}",
                block.lines[0]
            ));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(compared >= 10, "only {compared} drawings were compared");
}

#[test]
fn versions_in_the_book_are_those_of_this_program() {
    let (major, minor) = Engine::FORMAT;
    let told = [
        ("format", format!("version {major}.{minor}.")),
        ("upgrades", format!("format {major}.{minor},")),
        (
            "upgrades",
            format!("Rust {}", env!("CARGO_PKG_RUST_VERSION")),
        ),
        (
            "upgrades",
            format!("version {} of the crate", env!("CARGO_PKG_VERSION")),
        ),
        (
            "README",
            format!("({} or later)", env!("CARGO_PKG_RUST_VERSION")),
        ),
    ];
    for (name, version) in told {
        let text = chapter(name).text;
        assert!(text.contains(&version), "{name} does not say {version:?}");
    }
    let golden = root().join(format!("tests/golden/format-{major}.{minor}"));
    let text = chapter("format").text;
    for entry in fs::read_dir(golden).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            text.contains(&format!("`{name}`")),
            "format does not name {name}"
        );
    }
}

#[test]
fn what_is_written_fits_what_is_shown_only_where_dots_stand() {
    let lines = |text: &str| Vec::from_iter(text.lines().map(ToOwned::to_owned));
    assert!(all_fit(&lines("a\n...\nz"), &["a", "b", "c", "z"]));
    assert!(all_fit(&lines("a 1... z"), &["a 123 z"]));
    assert!(!all_fit(&lines("a\n...\nz"), &["a", "b"]));
    assert!(!all_fit(&lines("a"), &["a", "b"]));
    assert!(!all_fit(&lines("a 1... z"), &["a 23 z"]));
}
