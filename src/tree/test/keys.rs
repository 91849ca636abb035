//! Families of keys that are hard on prefixes, heads and splits.

use super::Random;
use crate::limits::KEY_BYTES_MAX;

#[derive(Clone, Copy, Debug)]
pub(super) enum Family {
    /// Few short keys of few bytes, among them the empty one.
    Tiny,
    /// Numbers of eight bytes, big-endian, near each other or not.
    Numbers,
    /// Long common beginnings.
    Prefixed,
    /// Each key begins another one, of zeros or of 0xff.
    Nested,
    /// Up to the longest possible.
    Long,
    /// Digits spelled in words.
    Words,
}

pub(super) const FAMILIES: [Family; 6] = [
    Family::Tiny,
    Family::Numbers,
    Family::Prefixed,
    Family::Nested,
    Family::Long,
    Family::Words,
];

const WORDS: [&str; 10] = [
    "zero",
    "eins",
    "deux",
    "tres",
    "quattro",
    "пять",
    "ستة",
    "सात",
    "捌",
    "ஒன்பது",
];

/// A number's digits in words, a blank between.
pub(super) fn words(number: u64) -> Vec<u8> {
    let digits = number.to_string();
    let words = digits.bytes().map(|digit| WORDS[usize::from(digit - b'0')]);
    words.collect::<Vec<_>>().join(" ").into_bytes()
}

impl Family {
    pub(super) fn key(self, random: &mut Random) -> Vec<u8> {
        match self {
            Self::Tiny => {
                let bytes = [0, 1, 0xff, b'a'];
                (0..random.below(5))
                    .map(|_| bytes[random.below(4)])
                    .collect()
            }
            Self::Numbers => {
                let shift = [0, 20, 40][random.below(3)];
                ((random.next() % 5000) << shift).to_be_bytes().to_vec()
            }
            Self::Prefixed => {
                let mut key = vec![b'p'; [0, 3, 40, 300][random.below(4)]];
                key.extend_from_slice(&(random.below(3000) as u16).to_be_bytes());
                key.extend(vec![b's'; random.below(3)]);
                key
            }
            Self::Nested => {
                let byte = [0, 0xff][random.below(2)];
                let mut key = vec![byte; random.below(400)];
                if random.below(3) == 0 {
                    key.push(random.next() as u8);
                }
                key
            }
            Self::Long => {
                let fill = [b'a', 0xff][random.below(2)];
                let mut key = vec![fill; random.below(KEY_BYTES_MAX - 4)];
                key.extend_from_slice(&(random.below(600) as u32).to_be_bytes());
                key
            }
            Self::Words => words(random.next() % 30_000),
        }
    }
}

/// A value: mostly short, at times as long as half a page, at times longer than several.
pub(super) fn value(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(40) {
        0 => random.below(20_000),
        1 => 1900 + random.below(300),
        2..10 => random.below(300),
        10 => 0,
        _ => random.below(24),
    };
    let first = random.next() as u8;
    (0..bytes).map(|at| first.wrapping_add(at as u8)).collect()
}
