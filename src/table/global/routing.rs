//! Which shard has a key.

use crate::id::{ShardIndex, shard_of};

/// What of a key decides the shard that it lives in. It is chosen when globals are created, for ever.
///
/// Keys that agree in that part are neighbours in one shard: going over them asks that shard alone.
/// Going over keys that differ in it asks every shard, and merges what they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Routing {
    /// The name and the first subscript: what belongs to one customer, document or day is together.
    #[default]
    NameAndFirst,
    /// The name and the first so many subscripts; with 0, all of a name is in one shard.
    Prefix(u16),
    /// All of the key: any two keys are spread by chance, however alike they are.
    FullKey,
}

impl Routing {
    /// The subscripts that count, if not all do.
    pub(crate) fn subscripts(self) -> Option<usize> {
        match self {
            Self::NameAndFirst => Some(1),
            Self::Prefix(subscripts) => Some(usize::from(subscripts)),
            Self::FullKey => None,
        }
    }

    /// The shard of a key.
    #[inline]
    pub(crate) fn shard_of(self, key: &[u8], shards: usize) -> ShardIndex {
        if shards == 1 {
            return 0;
        }
        let inner = &key[..key.len().saturating_sub(1)];
        let part = match self.subscripts() {
            None => inner,
            Some(subscripts) => prefix(inner, subscripts).unwrap_or(inner),
        };
        shard_of(hash_of(part), shards)
    }

    /// The shard that has all keys which begin with some components, if one has. `prefix` has each
    /// component with its zero byte.
    pub(crate) fn home(self, components: &[u8], shards: usize) -> Option<ShardIndex> {
        if shards == 1 {
            return Some(0);
        }
        let part = prefix(components, self.subscripts()?)?;
        Some(shard_of(hash_of(part), shards))
    }
}

/// The name and some subscripts, if there are as many.
#[inline]
fn prefix(components: &[u8], subscripts: usize) -> Option<&[u8]> {
    let ends = components
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == 0);
    let (end, _) = ends.map(|(at, byte)| (at + 1, byte)).nth(subscripts)?;
    Some(&components[..end])
}

/// The hash by which transactions know a key. What decides the shard is hashed alike, which is part of the file
/// format: XXH3 (Collet).
#[inline]
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collation::{GlobalKey, Subscript};

    fn key(subscripts: &[u64]) -> GlobalKey {
        let subscripts: Vec<Subscript<'_>> = subscripts.iter().map(|&n| n.into()).collect();
        GlobalKey::of("x", &subscripts).unwrap()
    }

    #[test]
    fn keys_that_agree_in_the_routed_part_are_in_one_shard_and_others_spread() {
        for routing in [
            Routing::NameAndFirst,
            Routing::Prefix(2),
            Routing::Prefix(0),
        ] {
            let count = routing.subscripts().unwrap();
            let mut shards = [0; 5];
            for first in 0..200_u64 {
                let root = key(&[first, first, first][..count]);
                let home = routing.home(root.prefix(), 5).unwrap();
                assert_eq!(routing.shard_of(root.as_bytes(), 5), home);
                for below in 0..5_u64 {
                    let child = root.child(below).unwrap().child(1).unwrap();
                    assert_eq!(routing.shard_of(child.as_bytes(), 5), home);
                }
                shards[home] += 1;
            }
            let used = shards.iter().filter(|&&keys| keys > 0).count();
            assert_eq!(used, if count == 0 { 1 } else { 5 });
        }
        assert_eq!(Routing::FullKey.home(key(&[1]).prefix(), 5), None);
        assert_eq!(Routing::Prefix(2).home(key(&[1]).prefix(), 5), None);
        assert_eq!(Routing::FullKey.home(b"", 1), Some(0));
    }
}
