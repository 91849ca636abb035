//! A key in the parts in which a page holds it.

use super::slot::BRANCH_HEAD;

/// A key in the three parts in which a page holds it.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) head: [u8; BRANCH_HEAD],
    pub(super) head_bytes: u8,
    pub(super) tail: &'a [u8],
}

impl<'a> Parts<'a> {
    /// A key that is in one piece.
    pub(super) fn whole(key: &'a [u8]) -> Self {
        Self {
            prefix: key,
            head: [0; BRANCH_HEAD],
            head_bytes: 0,
            tail: &[],
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.prefix.len() + usize::from(self.head_bytes) + self.tail.len()
    }

    #[inline(always)]
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }

    /// Appends the key to a buffer.
    #[inline(always)]
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.head());
        out.extend_from_slice(self.tail);
    }

    /// Copies the key from byte `from` on, as much of it as `out` has room for.
    pub(super) fn copy(&self, mut from: usize, out: &mut [u8]) {
        let mut at = 0;
        for part in [self.prefix, self.head(), self.tail] {
            let rest = part.get(from..).unwrap_or(&[]);
            from = from.saturating_sub(part.len());
            let taken = rest.len().min(out.len() - at);
            out[at..at + taken].copy_from_slice(&rest[..taken]);
            at += taken;
        }
    }

    /// How many bytes at their start two keys have in common.
    pub(super) fn common(&self, other: &Self) -> usize {
        let (mut mine, mut theirs) = (self.pieces(), other.pieces());
        let (mut left, mut right) = (mine.next().unwrap_or(&[]), theirs.next().unwrap_or(&[]));
        let mut common = 0;
        loop {
            let both = left.len().min(right.len());
            let same = common_bytes(&left[..both], &right[..both]);
            common += same;
            if same < both {
                return common;
            }
            (left, right) = (&left[both..], &right[both..]);
            if left.is_empty() {
                left = match mine.next() {
                    Some(piece) => piece,
                    None => return common,
                };
            }
            if right.is_empty() {
                right = match theirs.next() {
                    Some(piece) => piece,
                    None => return common,
                };
            }
        }
    }

    /// Whether this key comes before another one.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        let common = self.common(other);
        let mut bytes = [[0]; 2];
        self.copy(common, &mut bytes[0]);
        other.copy(common, &mut bytes[1]);
        common < other.len() && (common == self.len() || bytes[0] < bytes[1])
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        [self.prefix, self.head(), self.tail].into_iter()
    }
}

/// How many bytes at their start two slices of equal length have in common.
fn common_bytes(left: &[u8], right: &[u8]) -> usize {
    let mut pairs = left.iter().zip(right);
    pairs
        .position(|(left, right)| left != right)
        .unwrap_or(left.len().min(right.len()))
}
