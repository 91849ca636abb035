//! The picture of a sweep: rate and efficiency above, counted facts below.

use std::fmt::Write;

use super::GROWTH_MAX;
use super::chart::{Chart, Curve, Mark, Place, put};
use super::point::Point;

const WIDTH: f64 = 1_240.0;
const MARGIN: f64 = 28.0;
const GAP: f64 = 36.0;
const HEAD: f64 = 126.0;
const UPPER: f64 = 390.0;
const LOWER: f64 = 270.0;
const COLOURS: [&str; 6] = [
    "#2f6fb0", "#c8641b", "#3c8a4a", "#8a56a8", "#b03a48", "#1f8a8a",
];

/// Draws all points, which come curve by curve.
pub(super) fn draw(points: &[Point]) -> String {
    let mut text = String::new();
    let height = HEAD + UPPER + GAP + LOWER + MARGIN;
    put!(
        text,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0}" height="{height:.0}" viewBox="0 0 {WIDTH:.0} {height:.0}" font-family="DejaVu Sans, Verdana, sans-serif">
<style>
.title {{ font-size: 17px; font-weight: bold; fill: #1c2226 }}
.name {{ font-size: 14px; font-weight: bold; fill: #1c2226 }}
.line {{ font-size: 12px; fill: #3a4248 }}
.part {{ font-size: 11px; fill: #545e66 }}
.mark {{ font-size: 11px; font-weight: bold }}
</style>
<rect width="100%" height="100%" fill="#ffffff"/>"##
    );
    let curves: Vec<&[Point]> = points
        .chunk_by(|left, right| left.curve() == right.curve())
        .collect();
    if let Some(first) = points.first() {
        head(&mut text, first, &curves);
    }
    let half = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
    let third = (WIDTH - 2.0 * MARGIN - 2.0 * GAP) / 3.0;
    for (index, chart) in [rate(&curves), efficiency(&curves)].iter().enumerate() {
        let x = MARGIN + index as f64 * (half + GAP);
        chart.draw(
            &mut text,
            Place {
                x,
                y: HEAD,
                width: half,
                height: UPPER,
            },
        );
    }
    let counted = [instructions(&curves), hops(&curves), lines(&curves)];
    for (index, chart) in counted.iter().flatten().enumerate() {
        let x = MARGIN + index as f64 * (third + GAP);
        let y = HEAD + UPPER + GAP;
        chart.draw(
            &mut text,
            Place {
                x,
                y,
                width: third,
                height: LOWER,
            },
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Title, machine, and the legend of all charts.
fn head(text: &mut String, first: &Point, curves: &[&[Point]]) {
    put!(
        text,
        r#"<text class="title" x="{MARGIN}" y="34">Ancile: MIXED (1 delete, 4 updates, 8 inserts, 64 selects) against the number of shards</text>"#
    );
    let machine = &first.machine;
    put!(
        text,
        r#"<text class="line" x="{MARGIN}" y="54">{}, {} cores, Linux {}; {} rows in all, own-shard batches of {}, not durable; commit {}</text>"#,
        escaped(&machine.processor),
        machine.cores,
        escaped(&machine.kernel),
        first.rows,
        first.batch,
        escaped(&machine.commit)
    );
    let mut x = MARGIN;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let name = curve[0].curve();
        put!(
            text,
            r#"<path d="M{x:.1} 76h26" stroke="{colour}" stroke-width="2.4"/><circle cx="{:.1}" cy="76" r="3.6" fill="{colour}"/>"#,
            x + 13.0
        );
        put!(
            text,
            r#"<text class="line" x="{:.1}" y="80">{name}</text>"#,
            x + 33.0
        );
        x += 48.0 + 7.2 * name.len() as f64;
    }
    put!(
        text,
        r##"<circle cx="{:.1}" cy="96" r="3.6" fill="#ffffff" stroke="#4a545c" stroke-width="1.8"/><text class="line" x="{:.1}" y="100">oversubscribed: more shards than cores</text>"##,
        MARGIN + 13.0,
        MARGIN + 33.0
    );
    put!(
        text,
        r##"<path d="M{:.1} 89l7 7l-7 7l-7 -7z" fill="#ffffff" stroke="#4a545c" stroke-width="2.2"/><text class="line" x="{:.1}" y="100">published: CompleteDB, {} threads of 2 x Xeon E5530</text>"##,
        MARGIN + 345.0,
        MARGIN + 361.0,
        first.reference_threads
    );
}

fn rate(curves: &[&[Point]]) -> Chart {
    let marks = curves
        .iter()
        .zip(COLOURS.iter().cycle())
        .filter_map(|(curve, colour)| {
            let published = curve[0].reference_ops_per_second? / 1e6;
            Some(Mark {
                colour,
                x: curve[0].reference_threads as f64,
                y: published,
                label: format!("{published:.1}"),
            })
        });
    Chart {
        marks: marks.collect(),
        ..measured(
            curves,
            "Rate",
            "million operations a second, all shards together",
            |point| point.ops_per_second / 1e6,
        )
    }
}

fn efficiency(curves: &[&[Point]]) -> Chart {
    let first = curves.first().map_or(1, |curve| curve[0].shards);
    let unit = format!(
        "rate a core in use, per cent of that with {first} shard{}",
        if first == 1 { "" } else { "s" }
    );
    measured(curves, "Efficiency", &unit, |point| {
        point.efficiency_per_core * 100.0
    })
}

/// A chart of what was timed, with the oversubscribed points marked.
fn measured(
    curves: &[&[Point]],
    title: &'static str,
    unit: &str,
    value: fn(&Point) -> f64,
) -> Chart {
    let cores = curves.first().map_or(1, |curve| curve[0].machine.cores);
    let is_crowded = curves
        .iter()
        .any(|curve| curve.iter().any(|point| point.oversubscribed));
    Chart {
        title,
        unit: unit.to_owned(),
        curves: curves_of(curves, true, value),
        marks: Vec::new(),
        shaded_from: is_crowded.then_some(cores as f64 + 0.5),
        shaded_label: format!("more shards than the {cores} cores here: they take turns"),
    }
}

fn instructions(curves: &[&[Point]]) -> Option<Chart> {
    let counter = curves.first()?[0].instructions_counter.clone()?;
    let growths = curves
        .iter()
        .filter_map(|curve| curve.last()?.instructions_growth);
    let most = growths.fold(f64::NEG_INFINITY, f64::max) * 100.0;
    let unit = format!(
        "{counter}; growth {most:+.1} %, bound {:.0} %",
        GROWTH_MAX * 100.0
    );
    Some(counted(
        curves,
        "Instructions an operation, own-shard",
        unit,
        |point| point.instructions_per_operation.unwrap_or(0.0),
    ))
}

fn hops(curves: &[&[Point]]) -> Option<Chart> {
    let call = curves.first()?[0].routed_call;
    let unit = format!("by message accounting; calls of {call}, rows spread evenly");
    Some(counted(
        curves,
        "Hops an operation, routed",
        unit,
        |point| point.routed_hops_per_operation,
    ))
}

fn lines(curves: &[&[Point]]) -> Option<Chart> {
    let unit = "by message accounting, both ways together".to_owned();
    Some(counted(
        curves,
        "Cache lines an operation, routed",
        unit,
        |point| point.routed_lines_per_operation,
    ))
}

/// A chart of what was counted, which no lack of cores can change.
fn counted(
    curves: &[&[Point]],
    title: &'static str,
    unit: String,
    value: fn(&Point) -> f64,
) -> Chart {
    Chart {
        title,
        unit,
        curves: curves_of(curves, false, value),
        marks: Vec::new(),
        shaded_from: None,
        shaded_label: String::new(),
    }
}

fn curves_of(curves: &[&[Point]], is_timed: bool, value: fn(&Point) -> f64) -> Vec<Curve> {
    let drawn = curves.iter().zip(COLOURS.iter().cycle()).enumerate();
    drawn
        .map(|(index, (curve, colour))| Curve {
            colour,
            // Counted curves may cover each other: then both are seen.
            broken: !is_timed && index % 2 == 1,
            points: curve
                .iter()
                .map(|point| {
                    (
                        point.shards as f64,
                        value(point),
                        is_timed && point.oversubscribed,
                    )
                })
                .collect(),
        })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
