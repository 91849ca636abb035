//! Whether slots are what they should be, and rows without trust in anything else.

use super::{GENERATION_SHIFT, IDENTITY_MASK, LIVE, NO_SLOT, Place, Slots};
use crate::arena::{Entry, View};
use crate::error::Faults;
use crate::id::DirectId;
use crate::limits::{GENERATION_MAX, PAGE_BYTES};

impl Slots {
    /// Tells of slots that are counted wrong, free twice, or lost.
    pub(in crate::table) fn check(&self, faults: &mut Faults) {
        let mut is_free = vec![false; self.next as usize];
        let mut note = |slot: u32, list: &str, faults: &mut Faults| {
            let place = format!("slot {slot}");
            match is_free.get_mut(slot as usize) {
                None => faults.note(place, format!("{list} names it, and it was never used")),
                Some(true) => faults.note(place, format!("{list} names it once more")),
                Some(is_free) => *is_free = true,
            }
            if slot < self.next && self.is_live(self.place(slot)) {
                let place = format!("slot {slot}");
                faults.note(place, format!("{list} names it, and a row lives there"));
            }
        };
        for slot in self.free.iter() {
            note(slot, "the free list", faults);
        }
        let (mut slot, mut steps) = (self.linked, 0);
        while slot != NO_SLOT && slot < self.next && steps <= self.next {
            note(slot, "the list of linked slots", faults);
            slot = self.linked_after(self.place(slot));
            steps += 1;
        }
        if slot != NO_SLOT {
            faults.note("list of linked slots", "it does not end");
        }
        let mut live = 0;
        for slot in 0..self.next {
            let header = self.header(self.place(slot));
            let generation = (header >> GENERATION_SHIFT) as u32 & GENERATION_MAX;
            if header & LIVE != 0 {
                live += 1;
            } else if generation < GENERATION_MAX && !is_free[slot as usize] {
                faults.note(format!("slot {slot}"), "it is neither a row nor free");
            }
        }
        if live != self.live {
            let counted = self.live;
            faults.note(
                "rows",
                format!("{live} rows live, and {counted} are counted"),
            );
        }
    }

    /// Visits what looks like a living row, in slabs of this shape that are not trusted: its id, and
    /// the words behind its header. Slots from `next` on are left out.
    pub(in crate::table) fn salvage(
        &self,
        view: View,
        slab: &Entry,
        next: u64,
        mut visit: impl FnMut(DirectId, &[u64]),
    ) {
        let first = u64::from(slab.use_.number) << self.slab_shift;
        let mut words = Vec::new();
        for within in 0..1_u64 << self.slab_shift {
            let slot = first + within;
            if slot >= next.min(u64::from(NO_SLOT)) {
                return;
            }
            let offset = slab.extent.offset + within * self.stride as u64;
            words.clear();
            view.with(offset, self.stride, |bytes| {
                let cells = bytes.chunks_exact(8);
                words.extend(cells.map(|word| word.try_into().map_or(0, u64::from_ne_bytes)));
            });
            let Some((&header, rest)) = words.split_first() else {
                return;
            };
            if header & LIVE != 0 {
                let generation = (header & IDENTITY_MASK) >> GENERATION_SHIFT;
                let shard = usize::from(self.shard);
                visit(DirectId::new(shard, slot as u32, generation as u32), rest);
            }
        }
    }

    /// Bytes of a slab.
    pub(in crate::table) fn slab_bytes(&self) -> u64 {
        (self.stride << self.slab_shift).next_multiple_of(PAGE_BYTES) as u64
    }

    /// The slot behind one of the linked list.
    fn linked_after(&self, place: Place) -> u32 {
        self.second_word(place) as u32
    }
}
