//! The form for the eye: nested boxes for packages, nodes, caches and cores, and every PU with the
//! shards that sit on it, in the colour of the node that holds their memory.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::layout::{Block, Scale};
use super::tree::Item;
use super::{Report, words};
use crate::plan::Seat;

/// Fill, border and pale form of the nodes' colours; they repeat after the last.
const COLOURS: [(&str, &str, &str); 8] = [
    ("#2f6fb0", "#1d4a78", "#e8f0f8"),
    ("#c8641b", "#86420f", "#fbeee4"),
    ("#3c8a4a", "#255a2f", "#e8f4ea"),
    ("#8a56a8", "#5b3771", "#f2eaf6"),
    ("#b03a48", "#76232e", "#f9e9eb"),
    ("#1f8a8a", "#125959", "#e4f3f3"),
    ("#8a7a1c", "#5a4f10", "#f5f2e0"),
    ("#5a6570", "#3a424a", "#edeff1"),
];
const MARGIN: f64 = 24.0;
const LINE: f64 = 20.0;
/// Below this width the lines of text would not fit.
const WIDTH_MIN: f64 = 880.0;
/// About how wide a character of a line is, and of the bold title.
const CHAR_WIDTH: f64 = 7.0;
const TITLE_CHAR_WIDTH: f64 = 9.6;

pub(super) fn render(report: &Report) -> String {
    let scale = Scale::of(&report.machine);
    let machine = Block::of_machine(&report.machine, scale);
    let width = (machine.width + 2.0 * MARGIN).max(WIDTH_MIN);
    let head = head(report);
    let foot = foot(report);
    let top = MARGIN + LINE * (head.len() as f64 + 1.0);
    let legend = top + machine.height + LINE;
    let height = legend + LINE * (foot.len() as f64 + 2.0) + MARGIN;
    let mut picture = Picture {
        report,
        width,
        scale,
        seats: BTreeMap::new(),
        text: String::new(),
    };
    for seat in &report.plan.seats {
        picture.seats.entry(seat.pu).or_default().push(seat);
    }
    picture.open(height);
    for (index, line) in head.iter().enumerate() {
        let class = if index == 0 { "title" } else { "line" };
        picture.running(class, MARGIN + LINE * (index as f64 + 0.6), line);
    }
    picture.block(&machine, MARGIN - scale.gap, top);
    picture.legend(legend);
    for (index, line) in foot.iter().enumerate() {
        picture.running("line", legend + LINE * (index as f64 + 2.0), line);
    }
    picture.text.push_str("</svg>\n");
    picture.text
}

fn head(report: &Report) -> Vec<String> {
    let plan = &report.plan;
    let mut lines = vec![
        words::title(&report.machine),
        words::summary(&report.machine),
    ];
    lines.push(format!(
        "Plan: {} ({}, {} order{})",
        words::count(plan.seats.len(), "shard"),
        plan.policy.shards,
        plan.policy.order,
        if plan.oversubscribed {
            ", oversubscribed"
        } else {
            ""
        }
    ));
    lines
}

fn foot(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for note in report.machine.notes.iter().chain(&report.plan.notes) {
        lines.push(format!("Note: {note}"));
    }
    for it in &report.restrictions {
        let what = words::restriction(it.kind);
        lines.push(format!("Restriction: {what}: {} ({})", it.value, it.source));
    }
    if let Some(verification) = &report.verification {
        let pinned = verification
            .shards
            .iter()
            .filter(|shard| shard.is_pinned())
            .count();
        let shares = verification
            .shards
            .iter()
            .filter_map(|shard| shard.local_share());
        let worst = shares.fold(None, |worst: Option<f64>, share| {
            Some(worst.map_or(share, |worst| worst.min(share)))
        });
        let memory = match worst {
            Some(share) => format!("at least {:.1} % of each arena on its node", share * 100.0),
            None => "pages not read".to_string(),
        };
        lines.push(format!(
            "Verified: {pinned} of {} threads pinned, {memory}",
            verification.shards.len()
        ));
    }
    lines
}

/// Writing to a string cannot fail; this keeps the calls short.
macro_rules! put {
    ($picture:expr, $($argument:tt)*) => {
        writeln!($picture.text, $($argument)*).expect("a string takes all")
    };
}

struct Picture<'report> {
    report: &'report Report,
    width: f64,
    scale: Scale,
    seats: BTreeMap<u32, Vec<&'report Seat>>,
    text: String,
}

impl Picture<'_> {
    fn open(&mut self, height: f64) {
        let (font, width) = (self.scale.font, self.width);
        put!(
            self,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" font-family="DejaVu Sans, Verdana, sans-serif">
<style>
.title {{ font-size: 15px; font-weight: bold; fill: #1c2226 }}
.line {{ font-size: 13px; fill: #3a4248 }}
.label {{ font-size: {font:.0}px; font-weight: bold; fill: #2a3136 }}
.part {{ font-size: {small:.0}px; fill: #545e66 }}
.on {{ font-size: {small:.0}px; fill: #ffffff }}
.shard {{ font-size: {font:.0}px; font-weight: bold; fill: #ffffff }}
.off {{ font-size: {small:.0}px; fill: #6b757d }}
</style>
<defs><pattern id="barred" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#eceeef"/><rect width="2" height="6" fill="#c9ced2"/></pattern></defs>
<rect width="100%" height="100%" fill="#ffffff"/>"##,
            small = font - 2.0,
        );
    }

    /// A line over the width of the picture, cut where it would leave it.
    fn running(&mut self, class: &str, y: f64, text: &str) {
        let char_width = if class == "title" {
            TITLE_CHAR_WIDTH
        } else {
            CHAR_WIDTH
        };
        let chars_max = ((self.width - 2.0 * MARGIN) / char_width) as usize;
        if text.chars().count() <= chars_max {
            self.line(class, MARGIN, y, text);
        } else {
            let cut: String = text.chars().take(chars_max.saturating_sub(3)).collect();
            self.line(class, MARGIN, y, &(cut + "..."));
        }
    }

    fn line(&mut self, class: &str, x: f64, y: f64, text: &str) {
        put!(
            self,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#,
            escaped(text)
        );
    }

    fn centred(&mut self, class: &str, x: f64, y: f64, text: &str) {
        put!(
            self,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="middle">{}</text>"#,
            escaped(text)
        );
    }

    fn block(&mut self, block: &Block, x: f64, y: f64) {
        if let Item::Pu(index) = block.item {
            self.pu(self.report.machine.pus[index].os_index, x, y);
            return;
        }
        self.frame(block, x, y);
        for (index, label) in block.labels.iter().enumerate() {
            let class = if index == 0 { "label" } else { "part" };
            let baseline = y + self.scale.head * (index as f64 + 0.72);
            self.line(class, x + 8.0, baseline, label);
        }
        for child in &block.children {
            self.block(child, x + child.x, y + child.y);
        }
    }

    fn frame(&mut self, block: &Block, x: f64, y: f64) {
        let (fill, border, dash) = match block.item {
            Item::Machine | Item::Pu(_) => return,
            Item::Package(_) => ("#f4f5f6", "#4a545c", ""),
            Item::Node(index) => {
                let (_, border, pale) = self.colour(self.report.machine.numa_nodes[index].os_index);
                (pale, border, "")
            }
            Item::Cache(_) => ("#fdfdfd", "#9aa4ab", r#" stroke-dasharray="5 3""#),
            Item::Core(_) => ("#ffffff", "#9aa4ab", ""),
        };
        put!(
            self,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" rx="4" fill="{fill}" stroke="{border}"{dash}/>"#,
            block.width,
            block.height
        );
    }

    fn pu(&mut self, os_index: u32, x: f64, y: f64) {
        let (width, height) = (self.scale.pu_width, self.scale.pu_height);
        let seats = self.seats.get(&os_index).cloned().unwrap_or_default();
        let (fill, border, dash) = match seats.first() {
            Some(seat) => {
                let (fill, border, _) = self.colour(seat.memory_node.or(seat.node).unwrap_or(0));
                (
                    fill,
                    border,
                    if seat.remote {
                        r#" stroke-width="3" stroke-dasharray="4 2""#
                    } else {
                        ""
                    },
                )
            }
            None if self.report.machine.allowed_pus.contains(os_index) => {
                ("#ffffff", "#9aa4ab", "")
            }
            None => ("url(#barred)", "#b4bbc0", ""),
        };
        put!(
            self,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="3" fill="{fill}" stroke="{border}"{dash}/>"#
        );
        let large = self.scale.core_labels;
        let name = if large {
            format!("PU {os_index}")
        } else {
            os_index.to_string()
        };
        let (centre, upper, lower) = (x + width / 2.0, y + height * 0.4, y + height * 0.82);
        match seats.as_slice() {
            [] => {
                self.centred("off", centre, y + height * 0.62, &name);
            }
            [first, rest @ ..] => {
                self.centred("on", centre, upper, &name);
                let more = if rest.is_empty() {
                    String::new()
                } else {
                    format!("+{}", rest.len())
                };
                let shard = match large && rest.is_empty() {
                    true => format!("shard {}", first.shard),
                    false => format!("s{}{more}", first.shard),
                };
                self.centred("shard", centre, lower, &shard);
            }
        }
    }

    /// A node's colours.
    fn colour(&self, node: u32) -> (&'static str, &'static str, &'static str) {
        let nodes = &self.report.machine.numa_nodes;
        let index = nodes.iter().position(|it| it.os_index == node).unwrap_or(0);
        COLOURS[index % COLOURS.len()]
    }

    fn legend(&mut self, y: f64) {
        let (fill, border, _) = COLOURS[0];
        let remote = r#" stroke-width="3" stroke-dasharray="4 2""#;
        let entries = [
            (
                fill,
                border,
                "",
                "shard on its PU, in the colour of its memory's node",
            ),
            (fill, border, remote, "memory is remote"),
            ("#ffffff", "#9aa4ab", "", "free PU"),
            ("url(#barred)", "#b4bbc0", "", "PU not allowed"),
        ];
        let mut x = MARGIN;
        for (fill, border, dash, text) in entries {
            put!(
                self,
                r#"<rect x="{x:.1}" y="{:.1}" width="18" height="14" rx="3" fill="{fill}" stroke="{border}"{dash}/>"#,
                y + 1.0
            );
            self.line("line", x + 24.0, y + 13.0, text);
            x += 46.0 + text.chars().count() as f64 * CHAR_WIDTH;
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
