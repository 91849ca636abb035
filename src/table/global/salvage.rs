//! What is whole of a part that is not trusted.

use super::Routing;
use super::part::TREE;
use crate::arena::{Arena, Entry};
use crate::collation::{GlobalKey, GlobalKeyRef};
use crate::id::ShardIndex;
use crate::table::{LeftOut, PartName};
use crate::tree::{Tree, TreeName, salvage};

/// Visits the nodes that are whole of a part in these extents; how many.
pub(crate) fn salvage_globals(
    arena: &Arena,
    (shard, shards): (ShardIndex, usize),
    routing: Routing,
    (name, own): (PartName, &[Entry]),
    left: &mut LeftOut,
    visit: &mut dyn FnMut(GlobalKeyRef<'_>, &[u8]),
) -> u64 {
    let name = TreeName {
        owner: name.serial,
        tree: TREE,
    };
    let (mut whole, mut keyless, mut strange) = (0, 0, 0);
    let found = salvage(
        arena,
        name,
        own,
        &mut |why, count| left.add(why, count),
        &mut |bytes, value| match GlobalKeyRef::of_stored(bytes) {
            Some(key) if GlobalKey::from_bytes(bytes).is_ok() => {
                if routing.shard_of(bytes, shards) == shard {
                    whole += 1;
                    visit(key, value);
                } else {
                    strange += 1;
                }
            }
            _ => keyless += 1,
        },
    );
    left.add("nodes whose key is damaged", keyless);
    left.add("nodes whose key belongs to another shard", strange);
    if let Some(said) = Tree::entries_said(arena, name, own) {
        left.add("nodes in damaged pages", said.saturating_sub(found));
    }
    whole
}
