//! The JSON form.

use serde::Serialize;

use super::{Report, Verification};
use crate::machine::{Counts, Machine, Restriction};
use crate::plan::Plan;

/// The number that changes when a field changes its meaning or goes.
const FORMAT: u32 = 1;

/// The fields in the order they are written.
#[derive(Serialize)]
struct Document<'report> {
    format: u32,
    machine: &'report Machine,
    counts: Counts,
    plan: &'report Plan,
    restrictions: &'report [Restriction],
    verification: Option<&'report Verification>,
}

pub(super) fn render(report: &Report) -> String {
    let document = Document {
        format: FORMAT,
        machine: &report.machine,
        counts: report.machine.counts(),
        plan: &report.plan,
        restrictions: &report.restrictions,
        verification: report.verification.as_ref(),
    };
    let text = serde_json::to_string_pretty(&document);
    text.expect("plain data without maps always serialises") + "\n"
}
