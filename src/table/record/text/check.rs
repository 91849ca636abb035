//! Whether texts are what their rows say, and blocks what their chunks say.

use super::{
    ALONE, BLOCK_BYTES_MAX, BLOCK_HEAD, FREE, Home, TextOwner, Texts, block_at, block_bytes,
    block_head, block_offset, chunk_head,
};
use crate::arena::Arena;

impl Texts {
    /// What is wrong with the text of a row: nothing, if it lies in a block of ours that says the same.
    pub(in crate::table::record) fn fault(
        &self,
        arena: &Arena,
        place: u64,
        length: usize,
        owner: TextOwner,
    ) -> Option<String> {
        let Some((offset, block)) = block_at(arena, place) else {
            return Some(format!("its text lies at {place}, where no text can"));
        };
        let room = if block.class == ALONE {
            let home = self.homes.get(&offset).filter(|home| home.class == ALONE);
            home.map(|home| home.extent.bytes as usize)
        } else {
            let chunk = self.chunk_of(arena, offset, block);
            chunk.map(|(home, _)| block_bytes(usize::from(home.class)))
        };
        let Some(room) = room else {
            return Some(format!("its text lies at {place}, where no block is"));
        };
        if block.slot != owner.slot || block.cell != owner.cell {
            let (slot, cell) = (block.slot, block.cell);
            return Some(format!(
                "its text at {place} belongs to cell {cell} of slot {slot}"
            ));
        }
        if block.length as usize != length || BLOCK_HEAD + length > room {
            let found = block.length;
            return Some(format!(
                "its text at {place} has {found} bytes, and should have {length}"
            ));
        }
        None
    }

    /// Visits every block in use, with who should name it; tells what is wrong with a chunk, and where.
    pub(in crate::table::record) fn survey(
        &self,
        arena: &Arena,
        note: &mut dyn FnMut(u64, String),
        visit: &mut dyn FnMut(u64, TextOwner, usize),
    ) {
        let mut homes: Vec<&Home> = self.homes.values().collect();
        homes.sort_unstable_by_key(|home| home.extent.offset);
        for home in homes {
            if home.class == ALONE {
                survey_alone(arena, home, note, visit);
            } else {
                survey_chunk(arena, home, note, visit);
            }
        }
    }
}

fn survey_alone(
    arena: &Arena,
    home: &Home,
    note: &mut dyn FnMut(u64, String),
    visit: &mut dyn FnMut(u64, TextOwner, usize),
) {
    let place = home.extent.offset + BLOCK_HEAD as u64;
    let Some((offset, block)) = block_at(arena, place) else {
        return;
    };
    let bytes = BLOCK_HEAD + block.length as usize;
    let is_sound = block.class == ALONE
        && block.number == 0
        && bytes > BLOCK_BYTES_MAX
        && bytes as u64 <= home.extent.bytes;
    if is_sound {
        visit(
            place,
            owner_of(block.slot, block.cell),
            block.length as usize,
        );
    } else {
        note(offset, "the head of a long text is damaged".to_owned());
    }
}

fn survey_chunk(
    arena: &Arena,
    home: &Home,
    note: &mut dyn FnMut(u64, String),
    visit: &mut dyn FnMut(u64, TextOwner, usize),
) {
    let (extent, class) = (home.extent, usize::from(home.class));
    let Some(head) = chunk_head(arena, *home) else {
        return note(
            extent.offset,
            "the head of a chunk of texts is damaged".to_owned(),
        );
    };
    let (mut live, mut free) = (0, 0);
    for number in 0..head.begun {
        let block = block_head(arena, extent, class, number);
        let offset = block_offset(extent.offset, number, block_bytes(class));
        match block.class {
            FREE if block.number == number => free += 1,
            in_use if in_use == home.class && block.number == number => {
                live += 1;
                let place = offset + BLOCK_HEAD as u64;
                visit(
                    place,
                    owner_of(block.slot, block.cell),
                    block.length as usize,
                );
            }
            _ => note(offset, "the head of a block of text is damaged".to_owned()),
        }
    }
    if live != head.live {
        let counted = head.live;
        let what = format!("{live} texts are in a chunk that counts {counted}");
        note(extent.offset, what);
    }
    let (mut next, mut listed) = (head.free, 0);
    while next > 0 && next <= head.begun && listed <= head.begun {
        let block = block_head(arena, extent, class, next - 1);
        if block.class != FREE {
            break;
        }
        listed += 1;
        next = block.slot;
    }
    if next != 0 || listed != free {
        let what = format!("{listed} of {free} free blocks are listed in a chunk of texts");
        note(extent.offset, what);
    }
}

fn owner_of(slot: u32, cell: u16) -> TextOwner {
    TextOwner { slot, cell }
}
