//! A directory of results as it was left by a run: JSON lines, steps, and what the machine is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::Failure;

/// What became of one step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: String,
    /// `done`, `failed` or `skipped`.
    pub(super) state: String,
    pub(super) seconds: String,
    /// The command, or why there was none, or how it failed.
    pub(super) said: String,
}

/// One line of a bench.
#[derive(Debug, Clone)]
pub(super) struct Line(pub(super) Value);

impl Line {
    /// A text, empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or("")
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool) == Some(true)
    }

    /// The middle one of numbers in order.
    pub(super) fn middle(&self, name: &str) -> Option<f64> {
        let numbers = self.0.get(name)?.as_array()?;
        numbers.get(numbers.len() / 2)?.as_f64()
    }
}

/// All that a run has left.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) steps: Vec<Step>,
    /// What there is to know of machine, versions and sources: name and value.
    pub(super) facts: Vec<(String, String)>,
    pub(super) lines: Vec<Line>,
}

impl Results {
    /// Reads a directory, and writes next to each file of JSON lines the same as CSV.
    pub(super) fn read(directory: &Path) -> Result<Self, Failure> {
        let mut results = Self::default();
        let text = |name: &str| fs::read_to_string(directory.join(name));
        results.take_steps(&text("steps.tsv").map_err(|error| {
            Failure::new(format!("{}/steps.tsv: {error}", directory.display()))
        })?);
        results.take_facts(&text("machine.tsv").unwrap_or_default());
        for step in results.steps.clone() {
            let name = format!("{}.jsonl", step.name);
            let Ok(text) = text(&name) else { continue };
            let lines =
                lines_of(&text).map_err(|error| Failure::new(format!("{name}: {error}")))?;
            let path = directory.join(format!("{}.csv", step.name));
            fs::write(path, comma_separated(&lines))?;
            results.lines.extend(lines);
        }
        Ok(results)
    }

    pub(super) fn take_steps(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.splitn(4, '\t').map(str::to_owned);
            let mut next = || words.next().unwrap_or_default();
            self.steps.push(Step {
                name: next(),
                state: next(),
                seconds: next(),
                said: next(),
            });
        }
    }

    fn take_facts(&mut self, text: &str) {
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.facts.extend(pairs);
    }

    /// The lines of a bench.
    pub(super) fn of(&self, bench: &str) -> Vec<&Line> {
        let lines = self.lines.iter();
        lines.filter(|line| line.text("bench") == bench).collect()
    }
}

/// The lines of a file; one that was cut off at its end is left out.
pub(super) fn lines_of(text: &str) -> Result<Vec<Line>, serde_json::Error> {
    let (whole, _) = text.rsplit_once('\n').unwrap_or(("", text));
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).map(Line))
        .collect()
}

/// A column for each name that any line has; lists and the like are left to the JSON lines.
pub(super) fn comma_separated(lines: &[Line]) -> String {
    let objects = || lines.iter().filter_map(|line| line.0.as_object());
    let is_plain = |value: &Value| !value.is_array() && !value.is_object();
    let names: BTreeSet<&str> = objects()
        .flat_map(|object| object.iter())
        .filter(|(_, value)| is_plain(value))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut text = Vec::from_iter(names.iter().copied()).join(",") + "\n";
    for object in objects() {
        let cells = names.iter().map(|name| match object.get(*name) {
            Some(Value::String(text)) => format!("\"{}\"", text.replace('"', "\"\"")),
            Some(value) if is_plain(value) && !value.is_null() => value.to_string(),
            _ => String::new(),
        });
        text += &(Vec::from_iter(cells).join(",") + "\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_left_out_and_one_that_is_broken_is_an_error() {
        let lines = lines_of("{\"a\":1}\n{\"a\":2}\n{\"a\"").unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].number("a"), Some(2.0));
        assert!(lines_of("{\"a\"\n{\"a\":2}\n").is_err());
    }

    #[test]
    fn commas_and_quotes_of_texts_stay_in_their_cell() {
        let lines = lines_of("{\"b\":\"x, \\\"y\\\"\",\"a\":1,\"c\":[1]}\n{\"a\":null}\n").unwrap();
        let wanted = "a,b\n1,\"x, \"\"y\"\"\"\n,\n";
        assert_eq!(comma_separated(&lines), wanted);
    }

    #[test]
    fn steps_say_what_became_of_them() {
        let mut results = Results::default();
        results.take_steps("line\tdone\t3\tancile-bench line\ngtm\tskipped\t0\tnot installed\n");
        assert_eq!(results.steps.len(), 2);
        assert_eq!(results.steps[1].state, "skipped");
        assert_eq!(results.steps[1].said, "not installed");
    }
}
