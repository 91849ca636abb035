//! Texts, figures and tables, as they stand on the page and in the README.

/// A table with its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Grid {
    pub(super) fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|word| (*word).to_owned()).collect();
        Self {
            head,
            rows: Vec::new(),
        }
    }

    /// The table as HTML; rows that begin with a mark are coloured by it.
    pub(super) fn html(&self) -> String {
        let cells = |kind: &str, row: &[String]| {
            let cells = row
                .iter()
                .map(|cell| format!("<{kind}>{}</{kind}>", escaped(cell)));
            Vec::from_iter(cells).concat()
        };
        let mut text = format!(
            "<div class=\"wide\"><table><tr>{}</tr>\n",
            cells("th", &self.head)
        );
        for row in &self.rows {
            let class = match row.first().map(String::as_str) {
                Some("missed" | "failed" | "lost") => " class=\"bad\"",
                Some("met" | "done" | "won") => " class=\"good\"",
                Some("not measured" | "skipped") => " class=\"none\"",
                _ => "",
            };
            text += &format!("<tr{class}>{}</tr>\n", cells("td", row));
        }
        text + "</table></div>\n"
    }
}

/// Text that stands for itself in HTML.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with the digits that mean something.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 => format!("{:.0} M", value / 1e6),
        size if size >= 1e6 => format!("{:.1} M", value / 1e6),
        size if size >= 1e4 => format!("{:.0} k", value / 1e3),
        size if size.fract() == 0.0 => format!("{value}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A number, or a dash where there is none.
pub(super) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_the_digits_that_mean_something() {
        let figures = [203e6, 1_234_567.0, 82_000.0, 317.2, 31.42, 14.0, 0.714, 0.0].map(figure);
        let wanted = ["203 M", "1.2 M", "82 k", "317", "31.4", "14", "0.71", "0"];
        assert_eq!(figures, wanted);
    }

    #[test]
    fn rows_that_were_missed_are_marked_as_such() {
        let mut grid = Grid::new(&["", "a"]);
        grid.rows.push(vec!["missed".to_owned(), "<".to_owned()]);
        let row = "<tr class=\"bad\"><td>missed</td><td>&lt;</td></tr>";
        assert!(grid.html().contains(row), "{}", grid.html());
    }
}
