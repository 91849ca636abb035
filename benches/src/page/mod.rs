//! `page`: one page, and CSV, of what `scripts/report` has measured.
//!
//! A directory of results holds `steps.tsv` (name, state, seconds, command or reason of each step),
//! `machine.tsv` (name and value), `topology.txt`, and `NAME.jsonl` of each step. What comes of it is
//! `index.html`, which needs nothing from elsewhere, and `NAME.csv`. Steps that failed or were skipped
//! stand on the page as such, and so does every target that was missed or not measured.

mod plot;
mod results;
mod sections;
mod targets;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::Failure;
use results::Results;
use text::{Grid, escaped};

/// Options of `page`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Directory of results, as `scripts/report` leaves it.
    pub directory: PathBuf,
}

/// Writes the page.
///
/// # Errors
/// When the directory cannot be read or written, or holds what is no line of a bench.
pub fn run(options: &Options) -> Result<(), Failure> {
    let results = Results::read(&options.directory)?;
    let topology = fs::read_to_string(options.directory.join("topology.txt"));
    let page = page(
        &results,
        &title(&options.directory),
        &topology.unwrap_or_default(),
    );
    let path = options.directory.join("index.html");
    fs::write(&path, page)?;
    println!("{}", path.display());
    Ok(())
}

fn title(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or(directory.as_os_str());
    format!("Ancile: {}", name.to_string_lossy())
}

fn page(results: &Results, title: &str, topology: &str) -> String {
    let mut facts = Grid::new(&["", ""]);
    let known = results.facts.iter();
    facts
        .rows
        .extend(known.map(|(name, value)| vec![name.clone(), value.clone()]));
    facts
        .rows
        .push(vec!["durability, pinned".to_owned(), conditions(results)]);
    let mut steps = Grid::new(&["", "step", "seconds", "command, or why not"]);
    for step in &results.steps {
        let cells = [&step.state, &step.name, &step.seconds, &step.said];
        steps.rows.push(cells.map(String::clone).to_vec());
    }
    let targets = targets::grid(results);
    let counts = ["met", "missed", "not measured"].map(|state| {
        let rows = targets.rows.iter().filter(|row| row[0] == state);
        format!("{} {state}", rows.count())
    });
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{style}</style></head><body>\n<h1>{title}</h1>\n\
         {facts}<details><summary>Topology</summary><div class=\"wide\"><pre>{topology}</pre></div></details>\n\
         <h2>Steps</h2>\n{steps}<h2>Targets: {counts}</h2>\n{targets}{sections}</body></html>\n",
        title = escaped(title),
        style = include_str!("style.css"),
        facts = facts.html(),
        topology = escaped(topology),
        steps = steps.html(),
        counts = counts.join(", "),
        targets = targets.html(),
        sections = sections::all(results),
    )
}

/// What lines say of how they were measured, each once.
fn conditions(results: &Results) -> String {
    let lines = results.lines.iter();
    let mut said = Vec::from_iter(lines.flat_map(|line| {
        let durability = line.text("durability");
        let durability = (!durability.is_empty()).then(|| format!("durability {durability}"));
        let pinned = line
            .0
            .get("pinned")
            .map(|pinned| format!("pinned: {pinned}"));
        durability.into_iter().chain(pinned)
    }));
    said.sort();
    said.dedup();
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"bench":"completedb","op":"select","access":"direct","columns":10,"rows":1000000,"ops_per_second":2e8,"limit_ops_per_second":25e7,"reference_ops_per_second":38.5e6,"ops_per_second_min":1e8,"ops_per_second_max":3e8,"durability":"none","pinned":true}
{"bench":"sweep","access":"direct","columns":10,"shards":1,"ops_per_second":1e8,"instructions_per_operation":103,"oversubscribed":false}
{"bench":"sweep","access":"direct","columns":10,"shards":14,"ops_per_second":1e8,"instructions_per_operation":103.2,"oversubscribed":true,"instructions_growth":0.002}
{"bench":"latency","call":"select","durability":"none","load":"idle","rate_asked":null,"rate":9e5,"nanos_p50":1100,"nanos_p90":1200,"nanos_p99":2000,"nanos_p999":9000,"nanos_max":90000,"oversubscribed":false}
{"bench":"reopen","kept":"process","after":"killed","rows":1,"row_bytes":512,"open_ms":[4,5,6],"first_answer_ms":[5,6,7],"loaded_ms":[5,6,7]}
{"bench":"reopen","kept":"process","after":"killed","rows":2000000,"row_bytes":512,"open_ms":[4,5,6],"first_answer_ms":[5,6,7],"loaded_ms":[5,6,7]}
"#;

    fn sample() -> (tempfile::TempDir, Options) {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "steps.tsv",
            "all\tdone\t3\tall of it\npersist\tskipped\t0\tno <server>\n",
        );
        write("machine.tsv", "processor\tnone such\n");
        write("all.jsonl", LINES);
        let options = Options {
            directory: directory.path().to_owned(),
        };
        (directory, options)
    }

    #[test]
    fn a_page_shows_figures_and_what_is_missing_and_needs_nothing_from_elsewhere() {
        let (directory, options) = sample();
        run(&options).unwrap();
        let page = fs::read_to_string(directory.path().join("index.html")).unwrap();
        for wanted in [
            "SELECT, 10 columns, DirectId, 1.0 M rows</td><td>200 M</td><td>250 M</td><td>0.80</td>",
            "<tr class=\"none\"><td>skipped</td><td>persist</td><td>0</td><td>no &lt;server&gt;</td>",
            "Not measured in this run.",
            "<td>processor</td><td>none such</td>",
            "durability none; pinned: true",
            "First answer by size",
            "Instructions of an operation by shards",
        ] {
            assert!(page.contains(wanted), "{wanted} is not in\n{page}");
        }
        for foreign in ["http", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(directory.path().join("all.csv").exists());
    }

    #[test]
    fn every_tag_of_a_page_is_closed() {
        let (directory, options) = sample();
        run(&options).unwrap();
        let page = fs::read_to_string(directory.path().join("index.html")).unwrap();
        for tag in [
            "html", "body", "table", "tr", "td", "svg", "figure", "text", "div", "h2",
        ] {
            let opened = page.matches(&format!("<{tag} ")).count()
                + page.matches(&format!("<{tag}>")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_directory_without_steps_is_no_run() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            directory: directory.path().to_owned(),
        };
        let failure = run(&options).unwrap_err().to_string();
        assert!(failure.contains("steps.tsv"), "{failure}");
    }
}
