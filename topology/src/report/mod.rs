//! Shows a machine, a plan and what came of it, as text, JSON or SVG.
//!
//! # JSON fields
//! The names are those of the public structs, and stay: `format` (1), `machine` (see
//! [`Machine`]), `counts` (see `Counts`), `plan` (see
//! [`Plan`]), `restrictions[]` (`kind`, `value`, `source`) and `verification`
//! (`shards[]`, or null). Sets of PUs and nodes are arrays of the system's numbers. Bytes are
//! plain numbers; null stands for unknown. Fields may be added within a format.

mod json;
mod layout;
mod svg;
mod text;
mod tree;
mod words;

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Restriction, RestrictionKind};
use crate::plan::Plan;
use crate::set::NumberSet;

/// A machine, a plan on it, what restricts it, and what was verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The plan on it.
    pub plan: Plan,
    /// What narrows the plan: the machine's restrictions and the policy's reserve.
    pub restrictions: Vec<Restriction>,
    /// What was asked and got, if threads and arenas were really started.
    pub verification: Option<Verification>,
}

/// What was asked of the system and what was read back, shard by shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// One entry a shard.
    pub shards: Vec<ShardVerification>,
}

/// What was asked and got for one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardVerification {
    /// The shard's number.
    pub shard: usize,
    /// The PU of its seat.
    pub pu_asked: u32,
    /// The PU that its thread was running on.
    pub pu_got: Option<u32>,
    /// The affinity read back from its thread (`Cpus_allowed`).
    pub cpus_allowed: NumberSet,
    /// The node of its seat's memory.
    pub node_asked: Option<u32>,
    /// Pages of its arena by node, as `move_pages` tells; empty if that is denied.
    pub pages_by_node: Vec<NodePages>,
    /// Bytes of its arena in huge pages.
    pub huge_bytes: u64,
    /// What the system refused, one sentence each.
    pub errors: Vec<String>,
}

/// Pages on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePages {
    /// The node.
    pub node: u32,
    /// How many pages.
    pub pages: u64,
}

impl ShardVerification {
    /// Whether the thread may run on its seat's PU and nowhere else.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.cpus_allowed.len() == 1 && self.cpus_allowed.contains(self.pu_asked)
    }

    /// The share of pages on the asked node, from 0 to 1; `None` if nothing was asked or read.
    #[must_use]
    pub fn local_share(&self) -> Option<f64> {
        let node = self.node_asked?;
        let total: u64 = self.pages_by_node.iter().map(|it| it.pages).sum();
        let local = self.pages_by_node.iter().filter(|it| it.node == node);
        let local: u64 = local.map(|it| it.pages).sum();
        (total > 0).then(|| local as f64 / total as f64)
    }
}

impl Report {
    /// A report without verification.
    #[must_use]
    pub fn new(machine: Machine, plan: Plan) -> Self {
        let mut restrictions = machine.restrictions.clone();
        if plan.policy.reserve > 0 {
            let spare: NumberSet = plan.spare_pus.iter().copied().collect();
            restrictions.push(Restriction {
                kind: RestrictionKind::Reserve,
                value: format!("{} (free: {spare})", plan.policy.reserve),
                source: "policy".to_string(),
            });
        }
        Self {
            machine,
            plan,
            restrictions,
            verification: None,
        }
    }

    /// The same report with a verification.
    #[must_use]
    pub fn with_verification(self, verification: Verification) -> Self {
        Self {
            verification: Some(verification),
            ..self
        }
    }

    /// Text for a terminal: the tree, the plan, what restricts it, what was verified.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::render(self)
    }

    /// A picture as a self-contained SVG document.
    #[must_use]
    pub fn to_svg(&self) -> String {
        svg::render(self)
    }

    /// JSON with the documented field names, indented, with a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::render(self)
    }
}
