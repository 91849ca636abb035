//! Values: in their leaf if they are short, else in a chain of pages of their own.
//!
//! ```text
//! 0   kind 8 | 0 24 | stamp 32 |
//! 8   bytes 32 | next page 32 |
//! 16  delta 16 | 0 48 |
//! 24  a part of the value
//! ```
//! Every page of a chain but the last is full. What names the first one, is at [`FIRST_AT`] in the cell's value.

use super::build::Stored;
use super::error::Damaged;
use super::head::Place;
use super::page::{
    CHAIN_REF, CHAINED, Cell, ENTRY_MAX, HEADER, Kind, ROOM, View, u32_at, u64_at, word,
};
use super::pages::{self, NONE};
use super::slot::Shape;
use super::space::{self, PageMut};
use crate::arena::Arena;
use crate::limits::PAGE_BYTES;

/// Where a page of a chain names the next one.
pub(super) const NEXT_AT: usize = 12;
/// Where the first page of a chain is named in what stands for it.
pub(super) const FIRST_AT: usize = 4;

/// The value of an entry, where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Inline(&'a [u8]),
    Chain {
        arena: &'a Arena,
        stamp: u32,
        bytes: u32,
        first: u32,
    },
}

impl<'a> Value<'a> {
    /// The value of a leaf's entry.
    #[inline(always)]
    pub(super) fn of(
        arena: &'a Arena,
        stamp: u32,
        view: &View<'a>,
        cell: Cell,
    ) -> Result<Self, Damaged> {
        let Some(stored) = view.bytes.get(cell.value) else {
            return view.damaged("a value reaches beyond the page");
        };
        if cell.head & CHAINED == 0 {
            return Ok(Self(Source::Inline(stored)));
        }
        let Some((bytes, first)) = reference(stored) else {
            return view.damaged("the reference to a long value is too short");
        };
        Ok(Self(Source::Chain {
            arena,
            stamp,
            bytes,
            first,
        }))
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self.0 {
            Source::Inline(bytes) => bytes.len(),
            Source::Chain { bytes, .. } => bytes as usize,
        }
    }

    /// The value in one piece, if it is short enough to lie in its leaf: up to some 2,000 bytes.
    #[inline(always)]
    pub(crate) fn inline(&self) -> Option<&'a [u8]> {
        match self.0 {
            Source::Inline(bytes) => Some(bytes),
            Source::Chain { .. } => None,
        }
    }

    /// The value's pieces, in order.
    pub(crate) fn pieces(&self) -> Pieces<'a> {
        Pieces(self.0)
    }

    /// Appends the value to a buffer.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) -> Result<(), Damaged> {
        for piece in self.pieces() {
            out.extend_from_slice(piece?);
        }
        Ok(())
    }

    /// A copy of the value.
    pub(crate) fn to_vec(self) -> Result<Vec<u8>, Damaged> {
        // No room is made beforehand: in a damaged page the length may be anything.
        let mut bytes = Vec::new();
        self.append_to(&mut bytes)?;
        Ok(bytes)
    }
}

/// The pieces of a value, in order.
pub(crate) struct Pieces<'a>(Source<'a>);

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<&'a [u8], Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0 {
            Source::Inline([]) | Source::Chain { bytes: 0, .. } => None,
            Source::Inline(bytes) => {
                self.0 = Source::Inline(&[]);
                Some(Ok(bytes))
            }
            Source::Chain {
                arena,
                stamp,
                bytes,
                first,
            } => {
                let link = Link::read(arena, first, stamp, bytes);
                self.0 = match &link {
                    Ok(link) => Source::Chain {
                        arena,
                        stamp,
                        bytes: bytes - link.data.len() as u32,
                        first: link.next,
                    },
                    Err(_) => Source::Inline(&[]),
                };
                Some(link.map(|link| link.data))
            }
        }
    }
}

/// One page of a chain.
struct Link<'a> {
    data: &'a [u8],
    next: u32,
}

impl<'a> Link<'a> {
    /// The page from which `rest` bytes go on.
    fn read(arena: &'a Arena, page: u32, stamp: u32, rest: u32) -> Result<Self, Damaged> {
        let bytes = space::page(arena, page)?;
        let here = u32_at(bytes, 8) as usize;
        if u64_at(bytes, 0) != word(Kind::Chain, 0, 0, stamp) || here != ROOM.min(rest as usize) {
            return Err(Damaged {
                page,
                what: "it is not the part of a long value that is expected here",
            });
        }
        Ok(Self {
            data: &bytes[HEADER..HEADER + here],
            next: u32_at(bytes, 12),
        })
    }
}

/// Length and first page of a chained value.
fn reference(stored: &[u8]) -> Option<(u32, u32)> {
    let (bytes, rest) = stored.split_first_chunk::<4>()?;
    let first = rest.first_chunk::<4>()?;
    Some((u32::from_le_bytes(*bytes), u32::from_le_bytes(*first)))
}

/// Whether a value lies in the leaf, beside a key of this length.
pub(super) fn is_inline(key_bytes: usize, value_bytes: usize) -> bool {
    let shape = Shape { is_leaf: true };
    shape.fixed_bytes() + shape.tail_bytes(key_bytes) + value_bytes <= ENTRY_MAX
}

/// The pages that a value needs besides its leaf.
pub(super) fn chain_pages(key_bytes: usize, value_bytes: usize) -> u32 {
    if is_inline(key_bytes, value_bytes) {
        0
    } else {
        value_bytes.div_ceil(ROOM) as u32
    }
}

/// Writes a value into a chain, whose pages are reserved; what its cell is to hold.
pub(super) fn write_chain(
    arena: &mut Arena,
    place: Place,
    value: &[u8],
) -> Result<[u8; CHAIN_REF], Damaged> {
    let mut next = NONE;
    // From the last to the first, as each names the next.
    for data in value.chunks(ROOM).rev() {
        let (page, delta) = pages::allocate(arena, place)?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&word(Kind::Chain, 0, 0, place.stamp).to_le_bytes());
        header[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
        header[12..16].copy_from_slice(&next.to_le_bytes());
        header[16..18].copy_from_slice(&delta.to_le_bytes());
        PageMut::open(arena, page)?.write_fresh_parts(0, [&header, data, &[]]);
        next = page;
    }
    let mut reference = [0; CHAIN_REF];
    reference[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
    reference[4..].copy_from_slice(&next.to_le_bytes());
    Ok(reference)
}

/// Frees the pages of a value, if it has any.
pub(super) fn free_chain(
    arena: &mut Arena,
    place: Place,
    stored: Stored<'_>,
) -> Result<u32, Damaged> {
    let mut pages = 0;
    if !stored.is_chained() {
        return Ok(pages);
    }
    let (mut rest, mut page) = reference(stored.bytes).unwrap_or((0, NONE));
    while rest > 0 {
        let link = Link::read(arena, page, place.stamp, rest)?;
        let (bytes, next) = (link.data.len() as u32, link.next);
        pages::free(arena, place, page)?;
        rest -= bytes;
        page = next;
        pages += 1;
    }
    Ok(pages)
}

/// Visits the pages of a chained value.
pub(super) fn visit_chain(
    arena: &Arena,
    stamp: u32,
    stored: Stored<'_>,
    mut visit: impl FnMut(u32) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let (mut rest, mut page) = reference(stored.bytes).unwrap_or((0, NONE));
    while rest > 0 {
        let link = Link::read(arena, page, stamp, rest)?;
        visit(page)?;
        rest -= link.data.len() as u32;
        page = link.next;
    }
    Ok(())
}

const _: () = assert!(ROOM + HEADER == PAGE_BYTES);
