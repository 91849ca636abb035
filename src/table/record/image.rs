//! A record on its way: the cells of its row, and behind them the texts that do not fit there.
//!
//! ```text
//! image      | words of the image 8 | cells 8 x n | texts, each from a whole word on |
//! text cell  | bytes 15             | length 1 |           of 15 bytes or fewer
//! text cell  | place 8 | length 4 | first bytes 3 | 255 1 |    of more
//! ```
//! The place of a text is counted in bytes from the beginning of the image; in a row, it is an offset
//! in the arena. Otherwise a cell is the same in both.

use super::shape::{Shape, Spot};

/// Bytes of a text that its cell holds.
pub(super) const INLINE_BYTES: usize = 15;

const LONG: u8 = 255;

/// Cells before the record's own.
pub(crate) const HEAD: usize = 1;

/// The cell of a text, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextCell {
    Short {
        bytes: [u8; 16],
        length: usize,
    },
    Long {
        place: u64,
        length: usize,
        /// Its first bytes.
        begin: [u8; 3],
    },
}

impl TextCell {
    pub(super) fn read(cell: [u64; 2]) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&cell[0].to_le_bytes());
        bytes[8..].copy_from_slice(&cell[1].to_le_bytes());
        if bytes[15] == LONG {
            Self::Long {
                place: cell[0],
                length: cell[1] as u32 as usize,
                begin: [bytes[12], bytes[13], bytes[14]],
            }
        } else {
            Self::Short {
                bytes,
                length: usize::from(bytes[15]).min(INLINE_BYTES),
            }
        }
    }

    /// Whether a text is the one that the cell names, as far as a look tells that costs nothing: in a
    /// damaged file there may be none, or another one.
    #[inline]
    pub(super) fn names(self, text: &[u8]) -> bool {
        match self {
            Self::Short { .. } => true,
            Self::Long { length, begin, .. } => text.len() == length && text.starts_with(&begin),
        }
    }

    /// Whether a text is the one that the cell says, and the cell is as it was written.
    pub(super) fn fits(self, text: &[u8]) -> bool {
        match self {
            Self::Short { bytes, length } => {
                usize::from(bytes[INLINE_BYTES]) == length
                    && bytes[length..INLINE_BYTES].iter().all(|&byte| byte == 0)
            }
            Self::Long { length, .. } => length > INLINE_BYTES && self.names(text),
        }
    }

    /// The cell of a text that fits it.
    pub(super) fn short(text: &[u8]) -> [u64; 2] {
        debug_assert!(text.len() <= INLINE_BYTES);
        let mut bytes = [0; 16];
        bytes[..text.len()].copy_from_slice(text);
        bytes[15] = text.len() as u8;
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| half.try_into().map_or(0, u64::from_le_bytes);
        [word(low), word(high)]
    }

    /// The cell of a longer text that lies at a place.
    pub(super) fn long(place: u64, text: &[u8]) -> [u64; 2] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
        bytes[4..7].copy_from_slice(&text[..3]);
        bytes[7] = LONG;
        [place, u64::from_le_bytes(bytes)]
    }
}

/// Writes the image of a record, field by field.
pub(crate) struct ImageWriter<'a> {
    words: &'a mut Vec<u64>,
    start: usize,
}

impl<'a> ImageWriter<'a> {
    /// Begins an image of a record of so many cells, behind what is there.
    pub(crate) fn new(words: &'a mut Vec<u64>, cells: usize) -> Self {
        let start = words.len();
        words.resize(start + HEAD + cells, 0);
        words[start] = (HEAD + cells) as u64;
        Self { words, start }
    }

    /// Writes a field of eight bytes.
    pub(crate) fn cell(&mut self, spot: &Spot, value: u64) {
        self.words[self.start + HEAD + spot.cell] = value;
        self.note_present(spot);
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, spot: &Spot, text: &[u8]) {
        let cell = if text.len() <= INLINE_BYTES {
            TextCell::short(text)
        } else {
            let place = ((self.words.len() - self.start) * 8) as u64;
            for word in text.chunks(8) {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                self.words.push(u64::from_le_bytes(bytes));
            }
            self.words[self.start] = (self.words.len() - self.start) as u64;
            TextCell::long(place, text)
        };
        let at = self.start + HEAD + spot.cell;
        self.words[at..at + 2].copy_from_slice(&cell);
        self.note_present(spot);
    }

    /// Writes that there should be a text, and that it is lost: whoever reads it is told.
    pub(crate) fn lost(&mut self, spot: &Spot) {
        let at = self.start + HEAD + spot.cell;
        let cell = TextCell::long(u64::MAX, &[0; INLINE_BYTES + 1]);
        self.words[at..at + 2].copy_from_slice(&cell);
        self.note_present(spot);
    }

    fn note_present(&mut self, spot: &Spot) {
        if let Some((cell, bit)) = spot.presence {
            self.words[self.start + HEAD + cell] |= 1 << bit;
        }
    }
}

/// Where the values of a record's fields are: in an image, or in a row.
pub(crate) trait Values {
    fn cell(&self, cell: usize) -> u64;
    /// The text whose cell is at `cell`; empty if it cannot be, as in a damaged file.
    fn with_text<T>(&self, cell: usize, look: impl FnOnce(&[u8]) -> T) -> T;

    /// As [`with_text`](Self::with_text); none if the text is not there.
    fn try_text<T>(&self, cell: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T>;

    /// Whether a field holds anything.
    fn is_present(&self, spot: &Spot) -> bool {
        spot.presence
            .is_none_or(|(cell, bit)| self.cell(cell) >> bit & 1 == 1)
    }

    /// Writes the image of another record, whose fields are these ones of this record; nothing, and
    /// false, if one of the first `needed` is missing.
    fn pick(
        &self,
        fields: impl Iterator<Item = Spot>,
        needed: usize,
        shape: &Shape,
        words: &mut Vec<u64>,
    ) -> bool {
        let start = words.len();
        let mut image = ImageWriter::new(words, shape.cells);
        for (number, (from, to)) in fields.zip(&shape.spots).enumerate() {
            if !self.is_present(&from) {
                if number < needed {
                    words.truncate(start);
                    return false;
                }
            } else if from.kind.is_text() {
                self.with_text(from.cell, |text| image.text(to, text));
            } else {
                image.cell(to, self.cell(from.cell));
            }
        }
        true
    }
}

/// The image of a record.
#[derive(Clone, Copy)]
pub(crate) struct Image<'a> {
    words: &'a [u64],
}

impl<'a> Image<'a> {
    /// The image at the beginning of some words, and what follows it.
    pub(crate) fn split(words: &'a [u64]) -> Option<(Self, &'a [u64])> {
        let length = usize::try_from(*words.first()?).ok()?;
        let (words, rest) = words.split_at_checked(length.max(HEAD))?;
        Some((Self { words }, rest))
    }

    pub(crate) fn cells(&self) -> &'a [u64] {
        &self.words[HEAD..]
    }

    /// The cells of the image at the beginning of some words, to be changed.
    pub(crate) fn cells_mut(words: &mut [u64]) -> &mut [u64] {
        &mut words[HEAD..]
    }

    /// Writes the image of a record with more fields: the first ones are those of this record, the
    /// others those of `rest`.
    pub(crate) fn extend(&self, own: &Shape, rest: &Self, shape: &Shape, words: &mut Vec<u64>) {
        let mut image = ImageWriter::new(words, shape.cells);
        let first = own.spots.iter().map(|spot| (self, spot));
        let others = shape.spots[own.spots.len()..]
            .iter()
            .map(|spot| (rest, spot));
        for ((from, spot), to) in first.chain(others).zip(&shape.spots) {
            if !from.is_present(spot) {
                continue;
            }
            if spot.kind.is_text() {
                from.with_text(spot.cell, |text| image.text(to, text));
            } else {
                image.cell(to, from.cell(spot.cell));
            }
        }
    }

    /// Writes an image of a shape with only these fields, whose values are at other spots here.
    pub(crate) fn carry(&self, from: &[Spot], shape: &Shape, to: &[Spot], words: &mut Vec<u64>) {
        let mut image = ImageWriter::new(words, shape.cells);
        for (from, to) in from.iter().zip(to) {
            if !self.is_present(from) {
                continue;
            }
            if from.kind.is_text() {
                self.with_text(from.cell, |text| image.text(to, text));
            } else {
                image.cell(to, self.cell(from.cell));
            }
        }
    }
}

impl<'a> Image<'a> {
    /// The bytes of a text that lies at a place of the image.
    fn long(&self, place: u64, length: usize) -> Option<&'a [u8]> {
        let place = usize::try_from(place).ok()?;
        bytes_of(self.words).get(place..place.checked_add(length)?)
    }
}

impl Values for Image<'_> {
    #[inline]
    fn cell(&self, cell: usize) -> u64 {
        self.words[HEAD + cell]
    }

    #[inline]
    fn with_text<T>(&self, cell: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        let at = HEAD + cell;
        match TextCell::read([self.words[at], self.words[at + 1]]) {
            TextCell::Short { bytes, length } => look(&bytes[..length]),
            TextCell::Long { place, length, .. } => {
                look(self.long(place, length).unwrap_or_default())
            }
        }
    }

    #[inline]
    fn try_text<T>(&self, cell: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let at = HEAD + cell;
        match TextCell::read([self.words[at], self.words[at + 1]]) {
            TextCell::Short { bytes, length } => Some(look(&bytes[..length])),
            TextCell::Long { place, length, .. } => self.long(place, length).map(look),
        }
    }
}

/// Words as the bytes that they are in memory.
pub(super) fn bytes_of(words: &[u64]) -> &[u8] {
    zerocopy::IntoBytes::as_bytes(words)
}

/// The hash of some fields' values. It is part of the file format: XXH3 (Collet), text by text, and
/// the mix of [`hash`](crate::id::hash) for numbers.
pub(crate) fn hash_of(spots: &[Spot], values: &impl Values) -> u64 {
    spots.iter().fold(0x51, |seed: u64, spot| {
        let seed = seed.rotate_left(17);
        if !values.is_present(spot) {
            crate::id::hash(seed ^ 0xa5)
        } else if spot.kind.is_text() {
            values.with_text(spot.cell, |text| {
                twox_hash::XxHash3_64::oneshot_with_seed(seed, text)
            })
        } else {
            crate::id::hash(seed ^ values.cell(spot.cell))
        }
    })
}

/// Whether some fields have the same values here and there.
pub(crate) fn are_equal(spots: &[Spot], one: &impl Values, other: &impl Values) -> bool {
    spots.iter().all(|spot| is_equal(spot, one, other))
}

fn is_equal(spot: &Spot, one: &impl Values, other: &impl Values) -> bool {
    match (one.is_present(spot), other.is_present(spot)) {
        (false, false) => true,
        (true, true) if spot.kind.is_text() => {
            // Length and first bytes, or all of a short text.
            one.cell(spot.cell + 1) == other.cell(spot.cell + 1)
                && one.with_text(spot.cell, |one| {
                    other.with_text(spot.cell, |other| one == other)
                })
        }
        (true, true) => one.cell(spot.cell) == other.cell(spot.cell),
        _ => false,
    }
}
