//! What was aimed at, and whether a run has met it: limits of the machine, published figures, rivals.

use std::collections::BTreeMap;

use super::results::{Line, Results};
use super::text::{Grid, figure};

/// An operation of CompleteDB is to reach this share of the bare loops.
const OF_LIMIT_MIN: f64 = 0.7;
/// Instructions of an operation are to grow by less than this from the fewest to the most shards.
const GROWTH_MAX: f64 = 0.10;
/// A database in mapped files is to answer within so many milliseconds, whatever its size.
const OPEN_MILLIS_MAX: f64 = 100.0;

/// One target, and what was found.
struct Target {
    what: String,
    wanted: String,
    found: Option<f64>,
    met: bool,
}

/// All targets; those of which nothing was measured say so.
pub(super) fn grid(results: &Results) -> Grid {
    let mut targets = Vec::new();
    for (bench, find) in FINDERS {
        let before = targets.len();
        find(results, &mut targets);
        if targets.len() == before {
            targets.push(Target {
                what: bench.to_owned(),
                wanted: "see there".to_owned(),
                found: None,
                met: false,
            });
        }
    }
    let mut grid = Grid::new(&["", "what", "wanted", "found"]);
    for target in targets {
        let state = match (target.found, target.met) {
            (None, _) => "not measured",
            (_, true) => "met",
            (_, false) => "missed",
        };
        let found = target.found.map_or_else(|| "-".to_owned(), figure);
        let row = [state.to_owned(), target.what, target.wanted, found];
        grid.rows.push(row.to_vec());
    }
    grid
}

type Finder = fn(&Results, &mut Vec<Target>);

const FINDERS: [(&str, Finder); 9] = [
    (
        "CompleteDB: share of the limit, and published rates",
        completedb,
    ),
    ("sweep: instructions of an operation, 1 to 14 shards", sweep),
    ("memory: bytes of a row", memory),
    ("peers: rates beside other stores", peers),
    ("transactions: rates beside other stores", transactions),
    ("phone book: seconds beside maps and stores", persist),
    ("3n+1: seconds beside GT.M and other stores", threeen1),
    (
        "durable changes beside a plain file and RocksDB",
        durability,
    ),
    ("opening mapped files", reopen),
];

/// What a cell of CompleteDB is about.
pub(super) fn cell_name(line: &Line) -> String {
    let id = match line.text("access") {
        "direct" => "DirectId",
        _ => "SurrogateId",
    };
    let count = |name| line.number(name).unwrap_or_default();
    format!(
        "{}, {} columns, {id}, {} rows",
        line.text("op").to_uppercase(),
        count("columns"),
        figure(count("rows"))
    )
}

fn completedb(results: &Results, targets: &mut Vec<Target>) {
    for line in results.of("completedb") {
        let Some(rate) = line.number("ops_per_second") else {
            continue;
        };
        let mut add = |wanted: String, of: Option<f64>, least: f64| {
            let Some(of) = of else { return };
            targets.push(Target {
                what: cell_name(line),
                wanted,
                found: Some(rate / of),
                met: rate / of >= least,
            });
        };
        let limit = line.number("limit_ops_per_second");
        add(format!("{OF_LIMIT_MIN} of the limit"), limit, OF_LIMIT_MIN);
        let published = line.number("reference_ops_per_second");
        add("published rate of 14 threads".to_owned(), published, 1.0);
    }
}

fn sweep(results: &Results, targets: &mut Vec<Target>) {
    let lines = results.of("sweep");
    let growths = lines
        .iter()
        .filter_map(|line| line.number("instructions_growth"));
    if let Some(most) = growths.reduce(f64::max) {
        targets.push(Target {
            what: "growth of instructions of an operation with shards".to_owned(),
            wanted: format!("less than {GROWTH_MAX}"),
            found: Some(most),
            met: most < GROWTH_MAX,
        });
    }
}

fn memory(results: &Results, targets: &mut Vec<Target>) {
    for line in results.of("memory") {
        let (found, bound) = (
            line.number("bytes_per_row"),
            line.number("bytes_per_row_bound"),
        );
        if let (Some(found), Some(bound)) = (found, bound) {
            targets.push(Target {
                what: "bytes of a row, beyond its columns".to_owned(),
                wanted: format!("at most {}", figure(bound)),
                found: Some(found),
                met: found <= bound,
            });
        }
    }
}

fn reopen(results: &Results, targets: &mut Vec<Target>) {
    let lines = results.of("reopen");
    for line in lines.iter().filter(|line| line.text("kept") == "process") {
        let rows = line.number("rows").unwrap_or_default();
        if let Some(millis) = line.middle("first_answer_ms") {
            targets.push(Target {
                what: format!(
                    "first answer in ms, {}, {} rows",
                    line.text("after"),
                    figure(rows)
                ),
                wanted: format!("at most {OPEN_MILLIS_MAX} ms"),
                found: Some(millis),
                met: millis <= OPEN_MILLIS_MAX,
            });
        }
    }
}

fn peers(results: &Results, targets: &mut Vec<Target>) {
    let lines = results.of("peers");
    let singles = lines
        .into_iter()
        .filter(|line| line.text("access") == "surrogate" && line.number("batch") == Some(1.0));
    let name = |line: &Line| format!("{}, single calls", cell_name(line));
    rivals(singles, name, "subject", "ops_per_second", true, targets);
}

fn transactions(results: &Results, targets: &mut Vec<Target>) {
    let lines = results.of("transactions").into_iter();
    let lines = lines.filter(|line| line.text("part") == "peers");
    let name = |_: &Line| "transactions of four updates".to_owned();
    rivals(
        lines,
        name,
        "case",
        "transactions_per_second",
        true,
        targets,
    );
}

fn persist(results: &Results, targets: &mut Vec<Target>) {
    let name = |line: &Line| {
        let count = |name| figure(line.number(name).unwrap_or_default());
        format!(
            "phone book, {} rows, indexes: {}",
            count("rows"),
            count("indexes")
        )
    };
    let lines = results.of("persist").into_iter();
    rivals(lines, name, "contestant", "seconds_total", false, targets);
}

fn threeen1(results: &Results, targets: &mut Vec<Target>) {
    let name = |line: &Line| {
        let count = |name| figure(line.number(name).unwrap_or_default());
        format!("3n+1 to {}, {} streams", count("last"), count("streams"))
    };
    let lines = results.of("threeen1").into_iter();
    rivals(lines, name, "contestant", "seconds", false, targets);
}

fn durability(results: &Results, targets: &mut Vec<Target>) {
    let lines = results.of("durability").into_iter();
    let lines = lines.filter(|line| line.text("group") == "commits");
    let lines = lines.filter(|line| !line.text("subject").contains("under way"));
    let name = |_: &Line| "durable changes, single calls".to_owned();
    rivals(lines, name, "subject", "per_second", true, targets);
}

/// Ancile's best against the best of all others that did the same.
fn rivals<'a>(
    lines: impl Iterator<Item = &'a Line>,
    name: impl Fn(&Line) -> String,
    who: &str,
    value: &str,
    more_is_better: bool,
    targets: &mut Vec<Target>,
) {
    let mut best: BTreeMap<String, [Option<(f64, &str)>; 2]> = BTreeMap::new();
    for line in lines {
        let Some(found) = line.number(value) else {
            continue;
        };
        let who = line.text(who);
        if who.contains("limit") {
            continue;
        }
        let is_ours = who.to_lowercase().contains("ancile");
        let place = &mut best.entry(name(line)).or_default()[usize::from(!is_ours)];
        let is_better = place.is_none_or(|(old, _)| (found > old) == more_is_better);
        if is_better {
            *place = Some((found, who));
        }
    }
    for (what, both) in best {
        if let [Some((ours, _)), Some((theirs, who))] = both {
            targets.push(Target {
                what,
                wanted: format!("better than the best other: {who}, {}", figure(theirs)),
                found: Some(ours),
                met: (ours > theirs) == more_is_better,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::lines_of;
    use super::*;

    fn states(text: &str, part: &str) -> Vec<String> {
        let lines = lines_of(text).unwrap();
        let results = Results {
            lines,
            ..Results::default()
        };
        let rows = grid(&results).rows;
        let rows = rows.into_iter().filter(|row| row[1].contains(part));
        rows.map(|row| row[0].clone()).collect()
    }

    #[test]
    fn what_was_not_measured_is_said_and_never_left_out() {
        let all = states("", "");
        assert_eq!(all.len(), FINDERS.len());
        assert!(all.iter().all(|state| state == "not measured"), "{all:?}");
    }

    #[test]
    fn a_share_of_the_limit_below_the_wanted_one_is_missed() {
        let cell = |rate: u64| {
            format!(
                "{{\"bench\":\"completedb\",\"op\":\"mixed\",\"access\":\"direct\",\
                 \"ops_per_second\":{rate},\"limit_ops_per_second\":100}}\n"
            )
        };
        assert_eq!(states(&(cell(69) + &cell(70)), "MIXED"), ["missed", "met"]);
    }

    #[test]
    fn the_best_of_ours_is_held_against_the_best_of_the_others() {
        let line = |who: &str, seconds: f64| {
            format!(
                "{{\"bench\":\"threeen1\",\"contestant\":\"{who}\",\"last\":100,\"streams\":4,\
                 \"seconds\":{seconds}}}\n"
            )
        };
        let ours = line("ancile", 3.0) + &line("ancile, sessions", 9.0);
        assert_eq!(states(&(ours.clone() + &line("gtm", 4.0)), "3n+1"), ["met"]);
        assert_eq!(
            states(&(ours + &line("gtm", 4.0) + &line("map", 2.0)), "3n+1"),
            ["missed"]
        );
    }
}
