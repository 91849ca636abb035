//! A small chart as SVG: curves over numbers of shards, single marks, and a shaded range.

use std::fmt::Write;

/// Room above, left of and below the field of a chart.
const HEAD: f64 = 50.0;
const LEFT: f64 = 46.0;
const FOOT: f64 = 34.0;
/// Room for a mark's label at the right end.
const RIGHT: f64 = 14.0;
const RADIUS: f64 = 3.6;

/// Writing to a string cannot fail; this keeps the calls short.
macro_rules! put {
    ($text:expr, $($argument:tt)*) => {
        writeln!($text, $($argument)*).expect("a string takes all")
    };
}
pub(super) use put;

/// One curve.
pub(super) struct Curve {
    pub(super) colour: &'static str,
    /// Drawn with a broken line.
    pub(super) broken: bool,
    /// Number of shards, value, and whether the point is drawn hollow.
    pub(super) points: Vec<(f64, f64, bool)>,
}

/// A value that is not on a curve.
pub(super) struct Mark {
    pub(super) colour: &'static str,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) label: String,
}

/// A field with scales, and what is drawn in it.
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// What the values are.
    pub(super) unit: String,
    pub(super) curves: Vec<Curve>,
    pub(super) marks: Vec<Mark>,
    /// From here on to the right the field is shaded.
    pub(super) shaded_from: Option<f64>,
    /// Said in the shaded part.
    pub(super) shaded_label: String,
}

/// Where a chart stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Chart {
    pub(super) fn draw(&self, text: &mut String, place: Place) {
        let field = Field::new(self, place);
        put!(
            text,
            r#"<text class="name" x="{:.1}" y="{:.1}">{}</text>"#,
            place.x,
            place.y + 16.0,
            self.title
        );
        put!(
            text,
            r#"<text class="line" x="{:.1}" y="{:.1}">{}</text>"#,
            place.x,
            place.y + 34.0,
            self.unit
        );
        self.shade(text, &field);
        self.scales(text, &field);
        for curve in &self.curves {
            draw_curve(text, curve, &field);
        }
        let mut label_y = f64::INFINITY;
        for mark in self.marks_upwards() {
            let (x, y, colour) = (field.x(mark.x), field.y(mark.y), mark.colour);
            // Labels make room for each other.
            label_y = (y + 4.0).min(label_y - 12.0);
            put!(
                text,
                r##"<path d="M{x:.1} {:.1}l7 7l-7 7l-7 -7z" fill="#ffffff" stroke="{colour}" stroke-width="2.2"/>"##,
                y - 7.0
            );
            put!(
                text,
                r#"<text class="mark" x="{:.1}" y="{:.1}" fill="{colour}">{}</text>"#,
                x + 12.0,
                label_y,
                mark.label
            );
        }
    }

    /// The marks, the lowest first.
    fn marks_upwards(&self) -> Vec<&Mark> {
        let mut marks: Vec<&Mark> = self.marks.iter().collect();
        marks.sort_by(|left, right| left.y.total_cmp(&right.y));
        marks
    }

    fn shade(&self, text: &mut String, field: &Field) {
        let Some(from) = self.shaded_from else { return };
        let left = field.x(from).clamp(field.left, field.right);
        put!(
            text,
            r##"<rect x="{left:.1}" y="{:.1}" width="{:.1}" height="{:.1}" fill="#f1efe8"/>"##,
            field.top,
            field.right - left,
            field.bottom - field.top
        );
        put!(
            text,
            r#"<text class="part" x="{:.1}" y="{:.1}">{}</text>"#,
            left + 6.0,
            field.top + 14.0,
            self.shaded_label
        );
    }

    fn scales(&self, text: &mut String, field: &Field) {
        let mut value = 0.0;
        while value <= field.y_max * 1.000_1 {
            let y = field.y(value);
            put!(
                text,
                r##"<path d="M{:.1} {y:.1}H{:.1}" stroke="#d5dade"/>"##,
                field.left,
                field.right
            );
            put!(
                text,
                r#"<text class="part" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                field.left - 6.0,
                y + 4.0,
                number(value, field.step)
            );
            value += field.step;
        }
        let mut shown = f64::NEG_INFINITY;
        for x in &field.numbers {
            // Numbers that would touch are left out.
            if field.x(*x) - shown < 18.0 {
                continue;
            }
            shown = field.x(*x);
            put!(
                text,
                r#"<text class="part" x="{shown:.1}" y="{:.1}" text-anchor="middle">{x}</text>"#,
                field.bottom + 16.0
            );
        }
        put!(
            text,
            r#"<text class="part" x="{:.1}" y="{:.1}" text-anchor="middle">shards</text>"#,
            f64::midpoint(field.left, field.right),
            field.bottom + 31.0
        );
        put!(
            text,
            r##"<path d="M{:.1} {:.1}H{:.1}" stroke="#4a545c"/>"##,
            field.left,
            field.bottom,
            field.right
        );
    }
}

/// Lines first, points over them.
fn draw_curve(text: &mut String, curve: &Curve, field: &Field) {
    let colour = curve.colour;
    let path: Vec<String> = curve
        .points
        .iter()
        .map(|(x, y, _)| format!("{:.1} {:.1}", field.x(*x), field.y(*y)))
        .collect();
    let dash = if curve.broken {
        r#" stroke-dasharray="6 4""#
    } else {
        ""
    };
    put!(
        text,
        r#"<path d="M{}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>"#,
        path.join("L")
    );
    for (x, y, is_hollow) in &curve.points {
        let fill = if *is_hollow { "#ffffff" } else { colour };
        put!(
            text,
            r#"<circle cx="{:.1}" cy="{:.1}" r="{RADIUS}" fill="{fill}" stroke="{colour}" stroke-width="1.8"/>"#,
            field.x(*x),
            field.y(*y)
        );
    }
}

/// The field's corners and its scales.
struct Field {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The numbers of shards that occur.
    numbers: Vec<f64>,
    x_min: f64,
    x_max: f64,
    y_max: f64,
    step: f64,
}

impl Field {
    fn new(chart: &Chart, place: Place) -> Self {
        let points = chart.curves.iter().flat_map(|curve| &curve.points);
        let mut numbers: Vec<f64> = points.clone().map(|(x, ..)| *x).collect();
        numbers.extend(chart.marks.iter().map(|mark| mark.x));
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let values = points
            .map(|(_, y, _)| *y)
            .chain(chart.marks.iter().map(|mark| mark.y));
        let most = values.fold(0.0, f64::max);
        let step = step(most);
        Self {
            left: place.x + LEFT,
            right: place.x + place.width - RIGHT,
            top: place.y + HEAD,
            bottom: place.y + place.height - FOOT,
            x_min: numbers.first().copied().unwrap_or(0.0),
            x_max: numbers.last().copied().unwrap_or(1.0),
            numbers,
            // A tenth of room for labels.
            y_max: (most * 2.2 / step).ceil().max(1.0) * step / 2.0,
            step,
        }
    }

    /// Half a number's width is left free on both sides.
    fn x(&self, number: f64) -> f64 {
        let numbers = self.x_max - self.x_min + 1.0;
        self.left + (self.right - self.left) * (number - self.x_min + 0.5) / numbers
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * value / self.y_max
    }
}

/// A round distance between the lines of a scale: about five of them up to `most`.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(1e-9);
    let unit = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * unit >= rough);
    factor.unwrap_or(10.0) * unit
}

/// With the digits that the scale needs.
fn number(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::{number, step};

    #[test]
    fn scales_have_about_five_round_steps() {
        for (most, expected) in [
            (4.9, 1.0),
            (5.1, 2.0),
            (150.0, 50.0),
            (0.031, 0.01),
            (1.0, 0.2),
        ] {
            assert!((step(most) - expected).abs() < 1e-12, "{most}");
        }
        assert_eq!(number(0.02, 0.01), "0.02");
        assert_eq!(number(150.0, 50.0), "150");
    }
}
