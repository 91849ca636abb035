//! Bringing all tables of a shard together, so that memory and file space go back to the system.
//!
//! In steps, between which others are served: first texts out of chunks that are mostly free, and nodes of
//! globals into fewer pages and extents; then what nobody needs, then every extent to the lowest place that
//! has room for it.

use super::{Catalog, Part};
use crate::arena::Extent;

/// Bytes that one step moves.
const STEP_BYTES: usize = 4 << 20;

/// How far a shard has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compaction {
    #[default]
    Begin,
    Texts,
    Extents,
    Done,
}

impl Catalog {
    /// Takes one step; what the next one is.
    pub(crate) fn compact(&mut self, step: Compaction) -> Compaction {
        match step {
            Compaction::Begin => {
                for (_, part) in self.tables.iter_mut().flatten() {
                    match part {
                        Part::Rows(_) => {}
                        Part::Records(part) => part.plan_all(&self.arena),
                        Part::Globals(part) => part.plan_all(),
                    }
                }
                Compaction::Texts
            }
            Compaction::Texts => {
                if self.compact_texts() {
                    return Compaction::Texts;
                }
                for (_, part) in self.tables.iter_mut().flatten() {
                    match part {
                        Part::Rows(part) => part.shrink(&mut self.arena),
                        Part::Records(part) => part.shrink(&mut self.arena),
                        // What they have no use for has gone back.
                        Part::Globals(_) => {}
                    }
                }
                Compaction::Extents
            }
            Compaction::Extents if self.sink_extents() => Compaction::Extents,
            _ => Compaction::Done,
        }
    }

    /// Moves some texts, and pages of globals; says whether there may be more.
    fn compact_texts(&mut self) -> bool {
        let mut rest = STEP_BYTES;
        for (_, part) in self.tables.iter_mut().flatten() {
            let moved = match part {
                Part::Rows(_) => 0,
                Part::Records(part) => part.tidy(&mut self.arena, rest),
                Part::Globals(part) => part.tidy(&mut self.arena, rest),
            };
            rest = rest.saturating_sub(moved);
            if rest == 0 {
                return true;
            }
        }
        false
    }

    /// Moves some extents down, the highest ones first; says whether there may be more.
    fn sink_extents(&mut self) -> bool {
        let mut extents: Vec<(Extent, usize)> = Vec::new();
        for (at, table) in self.tables.iter().enumerate() {
            if let Some((_, part)) = table {
                let movable = match part {
                    Part::Rows(part) => part.movable(),
                    Part::Records(part) => part.movable(),
                    // Pages of a tree are named by their places.
                    Part::Globals(_) => Vec::new(),
                };
                extents.extend(movable.into_iter().map(|extent| (extent, at)));
            }
        }
        extents.sort_unstable_by_key(|(extent, _)| std::cmp::Reverse(extent.offset));
        let mut moved = 0;
        for (extent, at) in extents {
            let Some((_, part)) = &mut self.tables[at] else {
                continue;
            };
            let is_moved = match part {
                Part::Rows(part) => part.sink(&mut self.arena, extent),
                Part::Records(part) => part.sink(&mut self.arena, extent),
                Part::Globals(_) => false,
            };
            if is_moved {
                moved += extent.bytes as usize;
            }
            if moved >= STEP_BYTES {
                break;
            }
        }
        moved > 0
    }
}
