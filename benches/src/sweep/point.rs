//! One point of a curve, and the table of all.

use serde::Serialize;

use crate::machine::Machine;

/// One number of shards of one curve.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Point {
    pub(super) bench: &'static str,
    pub(super) op: &'static str,
    pub(super) route: &'static str,
    pub(super) access: &'static str,
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) shards: usize,
    pub(super) batch: usize,
    /// Of all shards together; median over slices.
    pub(super) ops_per_second: f64,
    pub(super) ops_per_second_min: f64,
    pub(super) ops_per_second_max: f64,
    pub(super) ops_per_second_mad: f64,
    pub(super) slices: usize,
    pub(super) operations: u64,
    pub(super) checksum: u64,
    /// Rate a shard, as a share of that of the curve's first point.
    pub(super) efficiency_per_shard: f64,
    /// Rate a core in use, as a share of that of the curve's first point.
    pub(super) efficiency_per_core: f64,
    /// More shards than cores: they take turns.
    pub(super) oversubscribed: bool,
    pub(super) reference_threads: usize,
    pub(super) reference_ops_per_second: Option<f64>,
    pub(super) instructions_per_operation: Option<f64>,
    /// Compared with the curve's first point; 0.1 is a tenth more.
    pub(super) instructions_growth: Option<f64>,
    pub(super) instructions_counter: Option<String>,
    /// By accounting, rows spread evenly over the shards.
    pub(super) routed_hops_per_operation: f64,
    pub(super) routed_lines_per_operation: f64,
    /// Operations of a routed call.
    pub(super) routed_call: usize,
    pub(super) pinned: bool,
    pub(super) node_bound: bool,
    pub(super) huge_pages: bool,
    #[serde(flatten)]
    pub(super) machine: Machine,
}

impl Point {
    /// Enters what the first point of the same curve decides; none for the first itself.
    pub(super) fn compare_with(&mut self, first: Option<&Self>) {
        let first = first.unwrap_or(self);
        let share = |parts: fn(&Self) -> usize| {
            let rate = |point: &Self| point.ops_per_second / parts(point) as f64;
            rate(self) / rate(first)
        };
        let per_shard = share(|point| point.shards);
        let per_core = share(|point| point.shards.min(point.machine.cores.max(1)));
        let counts = self
            .instructions_per_operation
            .zip(first.instructions_per_operation);
        self.instructions_growth = counts.map(|(here, there)| here / there - 1.0);
        self.efficiency_per_shard = per_shard;
        self.efficiency_per_core = per_core;
    }

    /// The curve that it belongs to.
    pub(super) fn curve(&self) -> String {
        let access = match self.access {
            "direct" => "DirectId",
            _ => "SurrogateId",
        };
        format!("{} columns, {access}", self.columns)
    }
}

/// The points, one line each, under a line of names.
pub(super) fn csv(points: &[Point]) -> String {
    let mut text = "columns,access,shards,oversubscribed,ops_per_second,ops_per_second_min,\
        ops_per_second_max,efficiency_per_shard,efficiency_per_core,reference_threads,\
        reference_ops_per_second,instructions_per_operation,instructions_growth,\
        routed_hops_per_operation,routed_lines_per_operation\n"
        .to_owned();
    let or_empty = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for point in points {
        let fields = [
            point.columns.to_string(),
            point.access.to_owned(),
            point.shards.to_string(),
            point.oversubscribed.to_string(),
            point.ops_per_second.to_string(),
            point.ops_per_second_min.to_string(),
            point.ops_per_second_max.to_string(),
            point.efficiency_per_shard.to_string(),
            point.efficiency_per_core.to_string(),
            point.reference_threads.to_string(),
            or_empty(point.reference_ops_per_second),
            or_empty(point.instructions_per_operation),
            or_empty(point.instructions_growth),
            point.routed_hops_per_operation.to_string(),
            point.routed_lines_per_operation.to_string(),
        ];
        text += &fields.join(",");
        text.push('\n');
    }
    text
}
