//! Where shards sit: a pure function of a machine and a policy.
//!
//! # How seats are chosen
//! 1. The candidates are the machine's allowed PUs (of the chosen kind of core). A list of PUs
//!    that the policy spells out is taken as it stands instead, if the kernel permits each.
//! 2. Candidates stand in groups: one a NUMA node, or one a package where PUs have no node.
//! 3. Seats are dealt in rounds. Round 0 offers the first PU of each core, round 1 the second, and
//!    so on, so SMT siblings come last. A round that is used up fills every group; within the last
//!    round each group gets its share in proportion to what it offers, by largest remainder.
//!    Symmetric nodes therefore get even numbers to within one, lopsided ones a fair proportion.
//!    Within a group the share is spread in the same way over packages and their largest caches.
//! 4. `Compact` numbers the shards group after group; `Scatter` takes one of each group in turn.
//! 5. Every seat gets a memory node ([`crate::memory`]), and arenas share the node's memory.
//!
//! # How many
//! By default as many as there are candidates, less the reserve, and no more than the CPU quota
//! rounded up. A count that was asked for is never cut: beyond the last PU seats start over, and
//! the plan says so.

use serde::{Deserialize, Serialize};

use crate::error::{PinError, PlanError};
use crate::machine::Machine;
use crate::memory;
use crate::policy::{Policy, Shards};
use crate::select;

/// The seats of all shards, and how they came about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// One seat a shard; the position is the shard's number.
    pub seats: Vec<Seat>,
    /// Whether shards share PUs because more were asked for than there are.
    pub oversubscribed: bool,
    /// Whether the plan is for the machine that this process runs on.
    pub is_this_system: bool,
    /// The policy that the plan follows.
    pub policy: Policy,
    /// Allowed PUs that no shard sits on, smallest first.
    pub spare_pus: Vec<u32>,
    /// Remarks on the plan as a whole, one sentence each.
    pub notes: Vec<String>,
    /// Where the machine's description came from, for error texts.
    pub source_detail: String,
}

/// The place of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The shard's number.
    pub shard: usize,
    /// The PU, by the system's number.
    pub pu: u32,
    /// Index into `Machine::cores`, where the machine has cores.
    pub core: Option<usize>,
    /// Index into `Machine::packages`, where the machine has packages.
    pub package: Option<usize>,
    /// The NUMA node that the PU belongs to, if any, by the system's number.
    pub node: Option<u32>,
    /// The NUMA node to take the arena's memory from; `None` on a machine without nodes.
    pub memory_node: Option<u32>,
    /// Whether that memory is not local to the PU.
    pub remote: bool,
    /// Bytes to reserve for the shard's arena; 0 if the size of the memory is not known.
    pub arena_bytes: u64,
    /// Remarks, one sentence each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Places the shards that a policy asks for on a machine.
    ///
    /// # Errors
    /// If nothing is allowed, no shard is asked for, or a listed PU or kind of core is not there.
    pub fn new(machine: &Machine, policy: &Policy) -> Result<Self, PlanError> {
        let (chosen, mut notes) = match &policy.shards {
            Shards::Pus(list) => (select::listed(machine, list)?, Vec::new()),
            _ => select::chosen(machine, policy)?,
        };
        let shards = match policy.shards {
            Shards::Count(count) => count.max(1),
            _ => chosen.len(),
        };
        let oversubscribed = shards > chosen.len();
        if oversubscribed {
            let pus = match chosen.len() {
                1 => "one PU".to_string(),
                pus => format!("{pus} PUs"),
            };
            notes.push(format!(
                "{shards} shards share {pus}: oversubscribed as asked"
            ));
        }
        let pus = chosen.iter().cycle().take(shards);
        let mut seats: Vec<Seat> = pus
            .enumerate()
            .map(|(shard, pu)| seat(machine, shard, *pu))
            .collect();
        notes.extend(memory::assign(machine, policy, &mut seats));
        let used = seats.iter().map(|seat| seat.pu).collect();
        Ok(Self {
            spare_pus: machine.allowed_pus.difference(&used).iter().collect(),
            seats,
            oversubscribed,
            is_this_system: machine.is_this_system,
            policy: policy.clone(),
            notes,
            source_detail: machine.source.detail.clone(),
        })
    }

    /// Pins the calling thread to the seat of a shard and reads back that it is so.
    ///
    /// # Errors
    /// If the plan is for another machine, has no such shard, or the system refuses; the thread
    /// goes on with the affinity that it had.
    pub fn pin_current_thread(&self, shard: usize) -> Result<(), PinError> {
        if !self.is_this_system {
            return Err(PinError::ForeignMachine {
                source_detail: self.source_detail.clone(),
            });
        }
        match self.seats.get(shard) {
            Some(seat) => crate::pin::pin_current_thread(seat.pu),
            None => Err(PinError::NoSuchShard {
                shard,
                shards: self.seats.len(),
            }),
        }
    }
}

/// A seat before its memory is known.
fn seat(machine: &Machine, shard: usize, os_index: u32) -> Seat {
    let pu = machine.pu(os_index);
    Seat {
        shard,
        pu: os_index,
        core: pu.and_then(|pu| pu.core),
        package: pu.and_then(|pu| pu.package),
        node: None,
        memory_node: None,
        remote: false,
        arena_bytes: 0,
        notes: Vec::new(),
    }
}
