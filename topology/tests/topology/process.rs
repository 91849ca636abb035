//! Runs the example program as a child, so that restrictions can be laid on it.

use std::path::PathBuf;
use std::process::Command;

use ancile_topology::Report;

/// What a child printed and how it ended.
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
    pub(crate) errors: String,
}

impl Output {
    /// The report that the child printed as JSON; it must have printed nothing else.
    pub(crate) fn report(&self) -> Report {
        assert_eq!(
            (self.code, self.errors.as_str()),
            (Some(0), ""),
            "{}",
            self.text
        );
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// The example program, which Cargo builds beside the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("it lies in deps");
    let program = profile.join("examples/describe");
    assert!(
        program.exists(),
        "{} is missing: build the examples too",
        program.display()
    );
    program
}

/// The program with arguments and none of the variables that it heeds.
pub(crate) fn describe(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_remove("ANCILE_SHARDS");
    command
}

/// The program behind another one, such as `taskset -c 1`.
pub(crate) fn behind(wrapper: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .arg(program())
        .args(arguments)
        .env_remove("ANCILE_SHARDS");
    command
}

pub(crate) fn run(mut command: Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Output {
        code: output.status.code(),
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether a command runs here with these arguments; says so if not.
pub(crate) fn works(command: &[&str]) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        println!("skipped: `{}` does not work here", command.join(" "));
    }
    works
}
