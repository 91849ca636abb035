//! Numbers as the benchmark stores them: every digit spelled, in ten languages, in UTF-8.
//!
//! 14 is `eins quattro`. A digit takes 3 to 18 bytes and one for the blank before it, so keys of
//! similar numbers share no useful prefix length and are far longer than the numbers: that is what
//! the benchmark is about. [`Spelling::Digits`] leaves numbers as they are, to see what it costs.

use clap::ValueEnum;

use crate::failure::Failure;

/// The words for 0 to 9.
pub const WORDS: [&str; 10] = [
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

/// Bytes that the longest number of 64 bits takes at most: twenty digits of the longest word.
pub const ENCODED_BYTES_MAX: usize = DIGITS_MAX * (WORD_BYTES_MAX + 1) - 1;

const DIGITS_MAX: usize = 20;
const WORD_BYTES_MAX: usize = 18;

/// How numbers are stored, keys and values alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Spelling {
    /// A word for each digit.
    Words,
    /// Decimal digits.
    Digits,
}

impl Spelling {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Digits => "digits",
        }
    }

    /// Appends `number` as it is stored.
    pub fn encode(self, number: u64, text: &mut Vec<u8>) {
        let mut digits = [0; DIGITS_MAX];
        let mut first = DIGITS_MAX;
        let mut rest = number;
        loop {
            first -= 1;
            digits[first] = (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        match self {
            Self::Digits => text.extend(digits[first..].iter().map(|digit| b'0' + digit)),
            Self::Words => {
                for (place, digit) in digits[first..].iter().enumerate() {
                    if place > 0 {
                        text.push(b' ');
                    }
                    text.extend_from_slice(WORDS[usize::from(*digit)].as_bytes());
                }
            }
        }
    }

    /// The number that is stored as `text`.
    ///
    /// # Errors
    /// When it is none, or larger than 64 bits.
    pub fn decode(self, text: &[u8]) -> Result<u64, Failure> {
        let number = match self {
            Self::Digits => text.chunks(1).try_fold(0, |number, digit| match digit[0] {
                digit @ b'0'..=b'9' => append(number, u64::from(digit - b'0')),
                _ => None,
            }),
            Self::Words => text
                .split(|byte| *byte == b' ')
                .try_fold(0, |number, word| append(number, digit(word)?)),
        };
        number.filter(|_| !text.is_empty()).ok_or_else(|| {
            let text = String::from_utf8_lossy(text);
            Failure::new(format!("a stored value is no number: \"{text}\""))
        })
    }
}

fn digit(word: &[u8]) -> Option<u64> {
    let place = WORDS.iter().position(|known| known.as_bytes() == word)?;
    Some(place as u64)
}

fn append(number: u64, digit: u64) -> Option<u64> {
    number.checked_mul(10)?.checked_add(digit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::XorShift;
    use crate::threeen1::walk::next;

    fn encoded(number: u64) -> String {
        let mut text = Vec::new();
        Spelling::Words.encode(number, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_spelled_as_published() {
        assert_eq!(encoded(11), "eins eins");
        assert_eq!(encoded(14), "eins quattro");
        assert_eq!(encoded(0), "zero");
        assert_eq!(encoded(6_789), "ستة सात 捌 ஒன்பது");
        assert_eq!(encoded(1_023_450), "eins zero deux tres quattro пять zero");
    }

    #[test]
    fn what_was_encoded_is_decoded_whatever_its_length() {
        let mut random = XorShift::new(7);
        let mut numbers = vec![0, 9, 10, u64::MAX];
        numbers.extend((0..2_000).map(|turn| random.next_bits() >> (turn % 64)));
        for spelling in [Spelling::Words, Spelling::Digits] {
            for number in &numbers {
                let mut text = Vec::new();
                spelling.encode(*number, &mut text);
                assert!(text.len() <= ENCODED_BYTES_MAX);
                assert_eq!(spelling.decode(&text).unwrap(), *number);
            }
        }
    }

    #[test]
    fn the_longest_number_takes_the_longest_encoding() {
        let longest = WORDS.iter().map(|word| word.len()).max();
        assert_eq!(longest, Some(WORD_BYTES_MAX));
        assert_eq!(u64::MAX.to_string().len(), DIGITS_MAX);
    }

    #[test]
    fn stored_bytes_are_as_many_as_published() {
        // Last integer; average in tenths and longest, of keys and of values.
        for (last, keys, values) in [(10, (94, 18), (91, 23)), (10_000, (325, 83), (163, 42))] {
            let mut steps = BTreeMap::from([(1, 0)]);
            for start in 1..=last {
                let (mut met, mut integer) = (vec![], start);
                while !steps.contains_key(&integer) {
                    met.push(integer);
                    integer = next(integer).unwrap();
                }
                let known = steps[&integer];
                steps.extend(met.into_iter().rev().zip(known + 1..));
            }
            steps.remove(&1);
            let bytes = |numbers: Vec<u64>| {
                let lengths: Vec<usize> = numbers.into_iter().map(|n| encoded(n).len()).collect();
                let tenths = 10.0 * lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
                (tenths.round() as usize, *lengths.iter().max().unwrap())
            };
            assert_eq!(bytes(steps.keys().copied().collect()), keys);
            assert_eq!(bytes(steps.values().copied().collect()), values);
        }
    }

    #[test]
    fn what_is_no_number_is_not_decoded() {
        let too_large = ["eins"; 21].join(" ");
        for text in [
            "",
            " ",
            "eins ",
            " eins",
            "eins  eins",
            "ein",
            "1",
            &too_large,
        ] {
            assert!(Spelling::Words.decode(text.as_bytes()).is_err(), "{text:?}");
        }
        for text in ["", "-1", "1 1", "eins", "99999999999999999999"] {
            assert!(
                Spelling::Digits.decode(text.as_bytes()).is_err(),
                "{text:?}"
            );
        }
    }
}
