//! Plots as inline SVG: bars in groups, and curves. Colours are classes of the page's style sheet.

use super::text::{escaped, figure};

/// Widths and heights in units of the view, which is as wide as the page lets it be.
const WIDTH: f64 = 420.0;
const LABELS: f64 = 120.0;
const VALUES: f64 = 50.0;
const BAR: f64 = 13.0;
const FIELD: f64 = 210.0;
const LEFT: f64 = 48.0;
/// Colours in the style sheet.
const COLOURS: usize = 6;

/// Bars of one group, with the number of each one's colour.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<(usize, f64)>,
}

/// One curve; a point is place, value, and whether it is drawn hollow.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64, bool)>,
}

/// How places are named below a curve.
pub(super) struct Scale<'a> {
    /// What the values are.
    pub(super) unit: &'a str,
    pub(super) places: Vec<(f64, String)>,
    /// Each step upwards is ten times as much.
    pub(super) tenfold: bool,
}

/// Bars that begin at nothing, with their values.
pub(super) fn bars(title: &str, legend: &[&str], groups: &[Group]) -> String {
    let all = groups.iter().flat_map(|group| &group.bars);
    let most = all.map(|bar| bar.1).fold(f64::MIN_POSITIVE, f64::max);
    let room = WIDTH - LABELS - VALUES;
    let (mut drawn, mut y) = (String::new(), 4.0);
    for group in groups {
        let middle = y + (group.bars.len() as f64 * BAR) / 2.0 + 4.0;
        drawn += &format!(
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\n",
            LABELS - 6.0,
            escaped(&group.name)
        );
        for (colour, value) in &group.bars {
            let width = value / most * room;
            drawn += &format!(
                "<rect class=\"c{}\" x=\"{LABELS}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                colour % COLOURS,
                BAR - 2.0,
                LABELS + width + 4.0,
                y + BAR - 3.0,
                figure(*value)
            );
            y += BAR;
        }
        y += 7.0;
    }
    framed(title, legend, y, &drawn)
}

/// Curves over named places.
pub(super) fn curves(title: &str, scale: &Scale<'_>, curves: &[Curve]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let values = || points().map(|point| point.1).filter(|value| *value > 0.0);
    let (Some(least), Some(most)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return String::new();
    };
    let (low, high) = if scale.tenfold {
        (
            least.log10().floor(),
            most.log10().ceil().max(least.log10().floor() + 1.0),
        )
    } else {
        (0.0, most * 1.1)
    };
    let height = |value: f64| {
        let value = if scale.tenfold {
            value.max(least).log10()
        } else {
            value
        };
        FIELD - (value - low) / (high - low) * (FIELD - 20.0)
    };
    let first = scale
        .places
        .iter()
        .map(|place| place.0)
        .fold(f64::MAX, f64::min);
    let last = scale
        .places
        .iter()
        .map(|place| place.0)
        .fold(f64::MIN, f64::max);
    let room = WIDTH - LEFT - 24.0;
    let along = |x: f64| LEFT + 10.0 + (x - first) / (last - first).max(1e-9) * room;
    let mut drawn = format!("<text x=\"0\" y=\"10\">{}</text>\n", escaped(scale.unit));
    drawn += &lines_across(scale, low, high);
    for (place, name) in &scale.places {
        drawn += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
            along(*place),
            FIELD + 16.0,
            escaped(name)
        );
    }
    for (number, curve) in curves.iter().enumerate() {
        let colour = number % COLOURS;
        let places = curve
            .points
            .iter()
            .map(|(x, y, hollow)| (along(*x), height(*y), *hollow));
        let places = Vec::from_iter(places);
        let path = places.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}"));
        let path = Vec::from_iter(path).join(" ");
        drawn += &format!("<polyline class=\"l{colour}\" points=\"{path}\"/>\n");
        for (x, y, hollow) in places {
            let kind = if hollow { "h" } else { "c" };
            drawn += &format!(
                "<circle class=\"{kind}{colour} l{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
    }
    let legend = Vec::from_iter(curves.iter().map(|curve| curve.name.as_str()));
    framed(title, &legend, FIELD + 22.0, &drawn)
}

/// Lines across the field, with the values at which they stand.
fn lines_across(scale: &Scale<'_>, low: f64, high: f64) -> String {
    let steps = if scale.tenfold { high - low } else { 4.0 };
    let lines = (0..=steps as usize).map(|step| {
        let at = low + (high - low) * step as f64 / steps;
        let value = if scale.tenfold { 10_f64.powf(at) } else { at };
        let y = FIELD - step as f64 / steps * (FIELD - 20.0);
        format!(
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{WIDTH}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 5.0,
            y + 4.0,
            figure(value)
        )
    });
    Vec::from_iter(lines).concat()
}

/// A figure with its title, and the names of its colours.
fn framed(title: &str, legend: &[&str], height: f64, drawn: &str) -> String {
    let named = legend.iter().enumerate().map(|(number, name)| {
        let colour = number % COLOURS;
        format!("<span><i class=\"c{colour}\"></i>{}</span>", escaped(name))
    });
    let title = escaped(title);
    format!(
        "<figure><figcaption>{title}</figcaption><div class=\"legend\">{}</div>\n\
         <svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n{drawn}</svg></figure>\n",
        Vec::from_iter(named).join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_room_and_half_of_it_half() {
        let group = Group {
            name: "a<b".to_owned(),
            bars: vec![(0, 10.0), (1, 5.0)],
        };
        let drawn = bars("title", &["one", "other"], &[group]);
        assert!(drawn.contains("width=\"250.0\""), "{drawn}");
        assert!(drawn.contains("width=\"125.0\""), "{drawn}");
        assert!(drawn.contains("a&lt;b"), "{drawn}");
    }

    #[test]
    fn tenfold_values_stand_at_equal_distances() {
        let curve = Curve {
            name: "curve".to_owned(),
            points: vec![(0.0, 1.0, false), (1.0, 10.0, true), (2.0, 100.0, false)],
        };
        let scale = Scale {
            unit: "us",
            places: vec![(0.0, "0".to_owned()), (2.0, "2".to_owned())],
            tenfold: true,
        };
        let drawn = curves("title", &scale, &[curve]);
        assert!(
            drawn.contains("58.0,210.0 232.0,115.0 406.0,20.0"),
            "{drawn}"
        );
        assert!(drawn.contains("class=\"h0 l0\""), "{drawn}");
    }

    #[test]
    fn curves_without_points_are_no_plot() {
        let scale = Scale {
            unit: "",
            places: vec![],
            tenfold: true,
        };
        assert_eq!(curves("title", &scale, &[]), "");
    }
}
