//! Whether a part is whole, and what its memory is used for.

use std::ops::ControlFlow;

use super::{Direction, GlobalPart, Span};
use crate::arena::Arena;
use crate::collation::GlobalKey;
use crate::error::Faults;
use crate::table::PartSpace;

impl GlobalPart {
    /// Tells of everything that is wrong with the part, in an engine of so many shards; its nodes.
    pub(crate) fn check(&self, arena: &Arena, shards: usize, faults: &mut Faults) -> u64 {
        if let Err(damaged) = self.tree().check(arena) {
            faults.note(format!("page {}", damaged.page), damaged.what);
        }
        let span = Span {
            start: &[],
            end: None,
        };
        let mut nodes = 0;
        let scanned = self.scan(arena, span, Direction::Forward, |key, _| {
            nodes += 1;
            let place = || format!("node {nodes}");
            match GlobalKey::from_bytes(key) {
                Err(error) => faults.note(place(), error),
                Ok(key) if self.routing().shard_of(key.as_bytes(), shards) != self.shard() => {
                    faults.note(place(), format!("{key:?} belongs to another shard"));
                }
                Ok(_) => {}
            }
            ControlFlow::Continue(())
        });
        match (scanned, self.len(arena)) {
            (Ok(()), Ok(len)) if len != nodes => {
                faults.note("head", format!("{nodes} nodes, and it says {len}"));
            }
            (Err(error), _) | (_, Err(error)) => faults.note("tree", error),
            _ => {}
        }
        nodes
    }

    /// What the part's memory is used for; nothing is told of a damaged one.
    pub(crate) fn space(&self, arena: &Arena) -> PartSpace {
        PartSpace {
            rows: self.len(arena).unwrap_or(0),
            row_bytes: self.bytes(arena).unwrap_or(0),
            text_bytes: 0,
            index_bytes: 0,
            tree: self.tree().space(arena).ok(),
        }
    }
}
