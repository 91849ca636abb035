//! The page's sections, one a bench. One without lines says so.

use std::collections::BTreeMap;

use super::plot::{Curve, Group, Scale, bars, curves};
use super::results::{Line, Results};
use super::targets::cell_name;
use super::text::{Grid, escaped, figure, maybe};

type Draw = fn(&[&Line]) -> String;

/// Bench, title, what it is about, and what draws it.
const SECTIONS: [(&str, &str, &str, Draw); 9] = [
    (
        "completedb",
        "CompleteDB: rate by operation",
        "Million operations a second. The limit is a bare loop over flat arrays in the same run; published \
         are 14 threads of two Xeon E5530.",
        completedb,
    ),
    (
        "peers",
        "Peers",
        "Million operations a second, in turns with other maps and stores, by SurrogateId unless said; \
         spread: slowest to fastest slice.",
        peers,
    ),
    (
        "sweep",
        "Scaling",
        "MIXED on own-shard rows. Hollow points have more shards than there are cores: their rates say \
         nothing of scaling, so what an operation costs is counted in instructions there.",
        sweep,
    ),
    (
        "latency",
        "Latency",
        "Microseconds. At a rate, calls are counted from the moment at which they were to begin, however \
         late they were made.",
        latency,
    ),
    (
        "transactions",
        "Transactions",
        "A second, in memory; of four random updates beside other stores.",
        transactions,
    ),
    (
        "durability",
        "Durable and journaled rates",
        "Operations a second; bytes a second for the disk, which is the limit of the rest.",
        durability,
    ),
    (
        "reopen",
        "Opening again",
        "Milliseconds until the first answer, after the database was closed or its process was killed.",
        reopen,
    ),
    (
        "persist",
        "Phone book",
        "Seconds for creating, reading in order, reading at random and deleting all rows: less is better.",
        persist,
    ),
    (
        "threeen1",
        "3n+1",
        "Seconds for GT.M's benchmark: less is better.",
        threeen1,
    ),
];

/// All sections, and memory per row, which is two figures.
pub(super) fn all(results: &Results) -> String {
    let mut text = String::new();
    for (bench, title, about, draw) in SECTIONS {
        let lines = results.of(bench);
        text += &format!("<h2>{}</h2>\n<p>{}</p>\n", escaped(title), escaped(about));
        text += &match lines.first() {
            Some(_) => draw(&lines),
            None => "<p class=\"bad\">Not measured in this run.</p>\n".to_owned(),
        };
    }
    text += "<h2>Memory of a row</h2>\n";
    let lines = results.of("memory");
    let names = [
        "columns",
        "rows",
        "bytes_per_row",
        "bytes_per_row_bound",
        "index_bytes_per_row",
    ];
    text += &match lines.first() {
        Some(_) => table(&lines, &[], &names),
        None => "<p class=\"bad\">Not measured in this run.</p>\n".to_owned(),
    };
    text
}

/// A table of texts and numbers of lines.
fn table(lines: &[&Line], texts: &[&str], numbers: &[&str]) -> String {
    let head = texts
        .iter()
        .chain(numbers)
        .map(|name| name.replace('_', " "));
    let mut grid = Grid {
        head: head.collect(),
        rows: Vec::new(),
    };
    for line in lines {
        let mut row = Vec::from_iter(texts.iter().map(|name| line.text(name).to_owned()));
        row.extend(numbers.iter().map(|name| maybe(line.number(name))));
        grid.rows.push(row);
    }
    grid.html()
}

/// Name of an operation, rows, and bars.
type Rated = (String, f64, Vec<(usize, f64)>);

fn completedb(lines: &[&Line]) -> String {
    let mut groups: Vec<Rated> = Vec::new();
    for line in lines {
        let names = [
            "ops_per_second",
            "limit_ops_per_second",
            "reference_ops_per_second",
        ];
        let values = names.iter().enumerate();
        let values = values.filter_map(|(colour, name)| Some((colour, line.number(name)? / 1e6)));
        let columns = line.number("columns").unwrap_or_default();
        groups.push((
            format!("{} {columns} col {}", line.text("op"), line.text("access")),
            line.number("rows").unwrap_or_default(),
            values.collect(),
        ));
    }
    let mut sizes = Vec::from_iter(groups.iter().map(|group| group.1 as u64));
    sizes.sort_unstable();
    sizes.dedup();
    let mut text = String::new();
    for size in sizes {
        let of_size = groups.iter().filter(|group| group.1 as u64 == size);
        let of_size = of_size.map(|(name, _, bars)| Group {
            name: name.clone(),
            bars: Vec::clone(bars),
        });
        let title = format!("{} rows", figure(size as f64));
        let legend = ["Ancile", "limit", "published"];
        text += &bars(&title, &legend, &Vec::from_iter(of_size));
    }
    let mut grid = Grid::new(&[
        "",
        "Ancile",
        "limit",
        "of limit",
        "published",
        "times",
        "spread",
    ]);
    for line in lines {
        let rate = line.number("ops_per_second");
        let (limit, published) = (
            line.number("limit_ops_per_second"),
            line.number("reference_ops_per_second"),
        );
        let ratio = |of: Option<f64>| maybe(rate.zip(of).map(|(rate, of)| rate / of));
        grid.rows.push(vec![
            cell_name(line),
            maybe(rate),
            maybe(limit),
            ratio(limit),
            maybe(published),
            ratio(published),
            spread(line, "ops_per_second"),
        ]);
    }
    text + &grid.html()
}

/// The least and the most.
fn spread(line: &Line, name: &str) -> String {
    let end = |end: &str| maybe(line.number(&format!("{name}_{end}")));
    format!("{} to {}", end("min"), end("max"))
}

/// Bars of lines that have one value each, in groups with a plot each; Ancile in a colour of its own.
fn ranked(
    lines: &[&Line],
    group: impl Fn(&Line) -> String,
    name: impl Fn(&Line) -> String,
    value: &str,
    scale: f64,
) -> String {
    let mut plots: Vec<(String, Vec<Group>)> = Vec::new();
    for line in lines {
        let Some(found) = line.number(value) else {
            continue;
        };
        let (title, name) = (group(line), name(line));
        let colour = usize::from(!name.to_lowercase().contains("ancile"));
        let bar = Group {
            name,
            bars: vec![(colour, found / scale)],
        };
        match plots.iter_mut().find(|plot| plot.0 == title) {
            Some(plot) => plot.1.push(bar),
            None => plots.push((title, vec![bar])),
        }
    }
    let legend = ["Ancile", "others"];
    let drawn = plots
        .iter()
        .map(|(title, groups)| bars(title, &legend, groups));
    Vec::from_iter(drawn).concat()
}

fn peers(lines: &[&Line]) -> String {
    let batch = |line: &Line| match line.number("batch") {
        Some(batch) if batch > 1.0 => format!(" x{batch}"),
        _ => String::new(),
    };
    let name = |line: &Line| format!("{}{}", line.text("subject"), batch(line));
    let drawn = ranked(
        lines,
        |line| line.text("op").to_owned(),
        name,
        "ops_per_second",
        1e6,
    );
    let mut grid = Grid::new(&["", "operation", "a second", "spread", "durability"]);
    for line in lines {
        grid.rows.push(vec![
            name(line),
            line.text("op").to_owned(),
            maybe(line.number("ops_per_second")),
            spread(line, "ops_per_second"),
            line.text("durability").to_owned(),
        ]);
    }
    drawn + &grid.html()
}

fn sweep(lines: &[&Line]) -> String {
    let mut text = String::new();
    let mut shards = Vec::from_iter(lines.iter().filter_map(|line| line.number("shards")));
    shards.sort_by(f64::total_cmp);
    shards.dedup();
    for (title, unit, name) in [
        (
            "Instructions of an operation",
            "instructions",
            "instructions_per_operation",
        ),
        ("Rate", "operations a second", "ops_per_second"),
    ] {
        let mut all: BTreeMap<String, Vec<(f64, f64, bool)>> = BTreeMap::new();
        for line in lines {
            if let (Some(x), Some(y)) = (line.number("shards"), line.number(name)) {
                let columns = line.number("columns").unwrap_or_default();
                let curve = format!("{} {columns} columns", line.text("access"));
                let point = (x, y, line.is("oversubscribed"));
                all.entry(curve).or_default().push(point);
            }
        }
        let all = all.into_iter().map(|(name, points)| Curve { name, points });
        let scale = Scale {
            unit,
            places: shards
                .iter()
                .map(|shards| (*shards, figure(*shards)))
                .collect(),
            tenfold: false,
        };
        text += &curves(&format!("{title} by shards"), &scale, &Vec::from_iter(all));
    }
    let numbers = [
        "columns",
        "shards",
        "ops_per_second",
        "efficiency_per_core",
        "instructions_per_operation",
    ];
    text + &table(lines, &["access"], &numbers)
}

const PERCENTILES: [(&str, &str); 5] = [
    ("nanos_p50", "p50"),
    ("nanos_p90", "p90"),
    ("nanos_p99", "p99"),
    ("nanos_p999", "p99.9"),
    ("nanos_max", "max"),
];

fn latency(lines: &[&Line]) -> String {
    let mut text = String::new();
    for load in ["idle", "loaded"] {
        let shown = lines
            .iter()
            .filter(|line| line.text("load") == load && line.number("rate_asked").is_none());
        let all = shown.map(|line| Curve {
            name: format!("{}, {}", line.text("call"), line.text("durability")),
            points: percentiles(line),
        });
        let places = PERCENTILES.iter().enumerate();
        let scale = Scale {
            unit: "us",
            places: places
                .map(|(place, name)| (place as f64, name.1.to_owned()))
                .collect(),
            tenfold: true,
        };
        // Few enough to be told apart by their colours.
        for some in Vec::from_iter(all).chunks(5) {
            text += &curves(&format!("One after the other, {load}"), &scale, some);
        }
    }
    let mut head = vec!["call", "durability", "load", "rate asked", "rate"];
    head.extend(PERCENTILES.map(|name| name.1));
    head.push("more threads than cores");
    let mut grid = Grid::new(&head);
    for line in lines {
        let mut row =
            Vec::from(["call", "durability", "load"].map(|name| line.text(name).to_owned()));
        row.extend(["rate_asked", "rate"].map(|name| maybe(line.number(name))));
        row.extend(percentiles(line).iter().map(|point| figure(point.1)));
        row.push(
            if line.is("oversubscribed") {
                "yes"
            } else {
                "no"
            }
            .to_owned(),
        );
        grid.rows.push(row);
    }
    text + &grid.html()
}

/// In microseconds, over their numbers.
fn percentiles(line: &Line) -> Vec<(f64, f64, bool)> {
    let names = PERCENTILES.iter().enumerate();
    names
        .filter_map(|(place, name)| Some((place as f64, line.number(name.0)? / 1e3, false)))
        .collect()
}

fn transactions(lines: &[&Line]) -> String {
    let group = |line: &Line| match line.text("part") {
        "shares" => "Ancile: share over two shards (million a second)".to_owned(),
        part => format!("{part} (million a second)"),
    };
    let rated = lines
        .iter()
        .copied()
        .filter(|line| line.text("part") != "latency");
    let name = |line: &Line| line.text("case").to_owned();
    let drawn = ranked(
        &Vec::from_iter(rated),
        group,
        name,
        "transactions_per_second",
        1e6,
    );
    let numbers = [
        "transactions_per_second",
        "transactions_per_second_min",
        "transactions_per_second_max",
        "ratio",
        "nanos_p50",
        "nanos_p99",
    ];
    drawn + &table(lines, &["part", "case", "durability"], &numbers)
}

fn durability(lines: &[&Line]) -> String {
    let group = |line: &Line| format!("{} (a second)", line.text("group"));
    let name = |line: &Line| line.text("subject").to_owned();
    let drawn = ranked(lines, group, name, "per_second", 1.0);
    let numbers = [
        "per_second",
        "per_second_min",
        "per_second_max",
        "ratio",
        "longest_micros",
    ];
    drawn + &table(lines, &["group", "subject"], &numbers)
}

fn reopen(lines: &[&Line]) -> String {
    let mut all: BTreeMap<String, Vec<(f64, f64, bool)>> = BTreeMap::new();
    let mut grid = Grid::new(&[
        "kept",
        "after",
        "MiB",
        "open ms",
        "first answer ms",
        "loaded ms",
    ]);
    let mut sizes = Vec::new();
    for line in lines {
        let bytes =
            line.number("rows").unwrap_or_default() * line.number("row_bytes").unwrap_or_default();
        let mebibytes = bytes / f64::from(1 << 20);
        let (kept, after) = (line.text("kept"), line.text("after"));
        // One row is not nothing, but next to it where sizes are gibibytes.
        let x = (1.0 + mebibytes).log2();
        sizes.push((
            x,
            if mebibytes < 1.0 {
                "1 row".to_owned()
            } else {
                figure(mebibytes)
            },
        ));
        if let Some(millis) = line.middle("first_answer_ms") {
            let points = all.entry(format!("{kept}, {after}")).or_default();
            points.push((x, millis, false));
        }
        let mut row = vec![kept.to_owned(), after.to_owned(), figure(mebibytes)];
        let names = ["open_ms", "first_answer_ms", "loaded_ms"];
        row.extend(names.map(|name| maybe(line.middle(name))));
        grid.rows.push(row);
    }
    sizes.sort_by(|one, other| one.0.total_cmp(&other.0));
    sizes.dedup_by(|one, other| one.1 == other.1);
    let scale = Scale {
        unit: "ms, over MiB",
        places: sizes,
        tenfold: true,
    };
    let all = all.into_iter().map(|(name, points)| Curve { name, points });
    curves("First answer by size", &scale, &Vec::from_iter(all)) + &grid.html()
}

fn persist(lines: &[&Line]) -> String {
    let group = |line: &Line| {
        let count = |name| figure(line.number(name).unwrap_or_default());
        format!(
            "{} rows, {} indexes, batches of {} (seconds)",
            count("rows"),
            count("indexes"),
            count("batch")
        )
    };
    let name = |line: &Line| line.text("contestant").to_owned();
    let drawn = ranked(lines, group, name, "seconds_total", 1.0);
    let numbers = [
        "rows",
        "indexes",
        "batch",
        "seconds_total",
        "seconds_total_min",
        "seconds_total_max",
        "published_mysql_seconds",
        "published_persist_seconds",
    ];
    drawn + &table(lines, &["contestant", "durability"], &numbers)
}

fn threeen1(lines: &[&Line]) -> String {
    let group = |line: &Line| {
        let count = |name| figure(line.number(name).unwrap_or_default());
        format!(
            "to {}, {} streams, {} (seconds)",
            count("last"),
            count("streams"),
            line.text("durability")
        )
    };
    let name = |line: &Line| line.text("contestant").to_owned();
    let drawn = ranked(lines, group, name, "seconds", 1.0);
    let numbers = [
        "last",
        "streams",
        "seconds",
        "seconds_min",
        "seconds_max",
        "updates_per_second",
        "reference_seconds",
    ];
    drawn + &table(lines, &["contestant", "durability", "setting"], &numbers)
}
