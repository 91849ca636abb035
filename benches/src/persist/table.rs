//! What the terminal shows: a table for each shape, and one over all of them as it was published.

use super::published;
use super::roster::Kind;
use super::{Line, Shape};
use crate::report::Table;

/// One table: who took how long for one shape.
pub(super) fn shape(shape: &Shape) -> String {
    let mut table = Table::new(&[
        "seconds", "create", "sequence", "random", "delete", "total a", "min", "+- %", "keeps",
        "MiB", "files", "passes", "a/b",
    ]);
    for line in &shape.lines {
        table.push(vec![
            line.contestant.clone(),
            span(line.seconds_create),
            span(line.seconds_sequence),
            span(line.seconds_random),
            span(line.seconds_delete),
            span(line.seconds_total),
            span(line.seconds_total_min),
            format!("{:.0}", line.seconds_total_mad / line.seconds_total * 100.0),
            line.durability.to_owned(),
            mebibytes(line.peak_resident_bytes),
            mebibytes(line.file_bytes),
            line.passes.to_string(),
            times(line.seconds_total / shape.lines[0].seconds_total),
        ]);
    }
    let found_by = match shape.indexes {
        1 => "indexed by name",
        _ => "indexed by name and by telephone, which the random order asks for",
    };
    format!(
        "\n{} rows, {found_by}\n{}b is the total of {}; writing and comparing the texts takes {} of every total\n",
        shape.rows,
        table.render(),
        shape.lines[0].contestant,
        span(shape.seconds_texts),
    )
}

/// The published table's like: a line for each shape, seconds for all four phases.
pub(super) fn summary(shapes: &[Shape]) -> String {
    let Some(first) = shapes.first().and_then(|shape| shape.lines.first()) else {
        return String::new();
    };
    let first = format!("{} (b)", first.contestant);
    let mut table = Table::new(&[
        "rows",
        "indexes",
        "server (a)",
        "store",
        "maps",
        &first,
        "a/b",
        "store/b",
        "| 2003:",
        "MySQL (a)",
        "Persist + STL (b)",
        "STL",
        "a/b",
    ]);
    for shape in shapes {
        let best = |kind: Kind| shape.best(kind).map(|line| line.seconds_total);
        let own = shape.lines[0].seconds_total;
        let or_dash = |value: Option<f64>, show: fn(f64) -> String| {
            value.map_or_else(|| "-".to_owned(), show)
        };
        let published = published::of(shape.rows);
        table.push(vec![
            shape.rows.to_string(),
            shape.indexes.to_string(),
            or_dash(best(Kind::Server), seconds),
            or_dash(best(Kind::Store), seconds),
            or_dash(best(Kind::Map), seconds),
            seconds(own),
            or_dash(best(Kind::Server).map(|total| total / own), times),
            or_dash(best(Kind::Store).map(|total| total / own), times),
            "|".to_owned(),
            or_dash(published.map(|published| published.mysql), seconds),
            or_dash(published.map(|published| published.persist), seconds),
            or_dash(published.map(|published| published.stl), seconds),
            or_dash(
                published.map(|published| published.mysql / published.persist),
                times,
            ),
        ]);
    }
    format!(
        "\nall four phases, seconds; the quickest server, store and maps of the run\n{}\
         published with one index, on a Pentium 4 of 2.4 GHz; Persist failed at 10000000 rows\n",
        table.render()
    )
}

impl Shape {
    /// The quickest of a kind.
    fn best(&self, kind: Kind) -> Option<&Line> {
        let lines = self.lines.iter().filter(|line| line.kind == kind.name());
        lines.min_by(|one, other| one.seconds_total.total_cmp(&other.seconds_total))
    }
}

/// A time in the unit that suits it.
fn span(value: f64) -> String {
    match rounded(value) {
        value if value < 1e-3 => format!("{} us", seconds(value * 1e6)),
        value if value < 1.0 => format!("{} ms", seconds(value * 1e3)),
        value => format!("{} s", seconds(value)),
    }
}

/// Three digits that mean something.
fn seconds(value: f64) -> String {
    let value = rounded(value);
    let places = 2 - value.max(1e-9).log10().floor() as i64;
    format!("{value:.*}", places.clamp(0, 9) as usize)
}

/// The nearest number of three digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn times(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(
        || "-".to_owned(),
        |bytes| bytes.div_ceil(1 << 20).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_three_digits() {
        let shown = [0.000_012_345, 0.012_345, 1.2345, 12.345, 575.214].map(seconds);
        assert_eq!(shown, ["0.0000123", "0.0123", "1.23", "12.3", "575"]);
    }

    #[test]
    fn a_time_is_shown_in_its_unit() {
        let shown = [0.000_012_345, 0.012_345, 0.9999, 575.214].map(span);
        assert_eq!(shown, ["12.3 us", "12.3 ms", "1.00 s", "575 s"]);
    }
}
