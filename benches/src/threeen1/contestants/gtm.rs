//! The real GT.M: a database in a temporary directory and a program in M, in processes of its own.
//!
//! A shell script sets the database up, starts the program and clears everything away as soon as
//! its input ends, which it does with this process in whatever way that ends. See the folder
//! `benches/threeen1` for both.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{Contestant, Durability, Ran, Wanted};
use crate::failure::Failure;
use crate::threeen1::input::Line;
use crate::threeen1::walk::Unit;
use crate::threeen1::words::WORDS;

const SCRIPT: &str = include_str!("../../../threeen1/gtm.sh");
const PROGRAM: &str = include_str!("../../../threeen1/threeen1.m");

/// GT.M at work.
pub(super) struct Gtm {
    name: String,
    durability: Durability,
    setting: String,
    database: PathBuf,
    script: Child,
    // Nobody writes here any more once this is closed, and the script ends.
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Gtm {
    /// Sets up an empty database and starts the program.
    ///
    /// # Errors
    /// When GT.M is not there, or refuses something.
    pub(super) fn new(wanted: &Wanted) -> Result<Self, Failure> {
        // In shared memory a commit survives its process anyway.
        let durability = match wanted.durability {
            Durability::Process => Durability::Epoch,
            other => other,
        };
        let (journal, hard) = match durability {
            Durability::None => ("none", false),
            Durability::Process | Durability::Epoch => ("before", false),
            Durability::Commit => ("before", true),
        };
        let epoch = wanted.gtm_epoch;
        let mut setting = "4,096-byte blocks, 5,000 buffers, UTF-8, ".to_owned();
        setting += &match durability {
            Durability::None => "no journal, file in shared memory".to_owned(),
            _ => format!("before-image journal, epochs of {epoch:?}"),
        };
        if hard {
            setting += ", commits wait for the journal";
        }
        let mut script = Command::new("bash")
            .args(["-c", SCRIPT, "gtm.sh"])
            .arg(wanted.folder(durability))
            .args([PROGRAM, journal, &epoch.as_secs().max(1).to_string()])
            .env("threeen1_words", WORDS.join(" "))
            .env("threeen1_spelling", wanted.spelling.name())
            .env("threeen1_unit", wanted.unit.name())
            .env("threeen1_commit", if hard { "hard" } else { "lazy" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = script.stdin.take();
        let answers = script.stdout.take();
        let Some(answers) = answers.map(BufReader::new) else {
            return Err(Failure::new("GT.M's answers cannot be read"));
        };
        if wanted.unit == Unit::Path {
            setting += ", one transaction a path";
        }
        let mut gtm = Self {
            name: String::new(),
            durability,
            setting,
            database: PathBuf::new(),
            script,
            input,
            answers,
        };
        gtm.database = PathBuf::from(gtm.answer("directory")?).join("threeen1.dat");
        let version = gtm.answer("version")?;
        let version = version.split(" Linux").next().unwrap_or("GT.M");
        gtm.name = version.to_owned();
        Ok(gtm)
    }

    /// The next answer, which must begin with `word`, without it.
    fn answer(&mut self, word: &str) -> Result<String, Failure> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let answer = answer.trim_end();
        match answer.strip_prefix(word) {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None if answer.is_empty() => Err(Failure::new("GT.M could not be run, see above")),
            None => Err(Failure::new(format!("GT.M says: {answer}"))),
        }
    }
}

impl Contestant for Gtm {
    fn name(&self) -> &str {
        &self.name
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn setting(&self) -> &str {
        &self.setting
    }

    fn streams(&self) -> &'static str {
        "processes"
    }

    fn run(&mut self, line: &Line) -> Result<Ran, Failure> {
        let Line {
            first,
            last,
            streams,
            block,
            ..
        } = line;
        if let Some(input) = &mut self.input {
            writeln!(input, "{first} {last} {streams} {block}")?;
        }
        let answer = self.answer("done")?;
        let stored_bytes = fs::metadata(&self.database).ok();
        let ran = parse(&answer, line)?;
        self.answer("cleared")?;
        Ok(Ran {
            stored_bytes: stored_bytes.map(|file| file.blocks() * 512),
            ..ran
        })
    }
}

/// Ends the program's input, and waits until the script has cleared away.
impl Drop for Gtm {
    fn drop(&mut self) {
        self.input = None;
        // There is nobody left to tell.
        let _ = self.script.wait();
    }
}

/// `first last streams block longest highest microseconds updates reads nodes`.
fn parse(answer: &str, line: &Line) -> Result<Ran, Failure> {
    let numbers: Vec<u64> = answer
        .split(' ')
        .map_while(|word| word.parse().ok())
        .collect();
    let asked = [line.first, line.last, line.streams, line.block];
    match numbers[..] {
        [a, b, c, d, longest, highest, micros, updates, reads, nodes] if [a, b, c, d] == asked => {
            Ok(Ran {
                longest,
                highest,
                reads,
                updates,
                nodes,
                seconds: micros as f64 / 1e6,
                raw_bytes: None,
                stored_bytes: None,
            })
        }
        _ => Err(Failure::new(format!("GT.M answers \"{answer}\" to {line}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_for_the_line_that_was_asked() {
        let line = Line::new(1, 10, 4, 2).unwrap();
        let ran = parse("1 10 4 2 19 52 1500 21 31 21", &line).unwrap();
        assert_eq!((ran.longest, ran.highest, ran.nodes), (19, 52, 21));
        assert_eq!((ran.updates, ran.reads, ran.seconds), (21, 31, 0.0015));
        for answer in [
            "",
            "1 10 4 2 19 52 1500 21 31",
            "1 9 4 2 19 52 1500 21 31 21",
        ] {
            assert!(parse(answer, &line).is_err(), "{answer}");
        }
    }
}
