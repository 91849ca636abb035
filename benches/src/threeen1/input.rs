//! Lines of input: `first last streams [block]`, single blanks between, until the end or an empty
//! line.
//!
//! The original program raises the number of streams to twice the number of processors. This one
//! takes what is asked for, so that fewer streams can be measured, too. As in the original, the size
//! of a block is at most, and without a size exactly, an even share of the range; a size that was
//! replaced is shown as `0->2,500`.

use std::fmt;
use std::io::BufRead;

use crate::failure::Failure;
use crate::threeen1::output::thousands;

/// Largest integer of a range. No sequence that starts below leaves 64 bits.
pub const LAST_MAX: u64 = 10_000_000_000;

/// Most streams of one line.
pub const STREAMS_MAX: u64 = 1_024;

/// What is to be done: sequences of all integers from `first` to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// First integer.
    pub first: u64,
    /// Last integer.
    pub last: u64,
    /// Parallel execution streams.
    pub streams: u64,
    /// Integers in a block, as it is used.
    pub block: u64,
    /// Integers in a block, as it was asked for; zero when it was not.
    pub block_asked: u64,
}

impl Line {
    /// Checks a line and chooses the size of its blocks.
    ///
    /// # Errors
    /// What is wrong with the integers.
    pub fn new(first: u64, last: u64, streams: u64, block_asked: u64) -> Result<Self, Failure> {
        let wrong = |sentence: String| Err(Failure::new(sentence));
        if first == 0 {
            return wrong("the first integer of a range must be above 0".to_owned());
        }
        if last <= first {
            return wrong(format!("a range must end above its start, {first}"));
        }
        if last > LAST_MAX {
            return wrong(format!("a range must end at or below {LAST_MAX}"));
        }
        if streams == 0 || streams > STREAMS_MAX {
            return wrong(format!("there must be 1 to {STREAMS_MAX} streams"));
        }
        let block_max = (last - first + streams) / streams;
        let block = match block_asked {
            0 => block_max,
            asked => asked.min(block_max),
        };
        Ok(Self {
            first,
            last,
            streams,
            block,
            block_asked,
        })
    }

    /// Integers of the range.
    pub fn starts(&self) -> u64 {
        self.last - self.first + 1
    }

    /// The last integers of all blocks, in order.
    pub fn limits(&self) -> impl Iterator<Item = u64> + use<> {
        let (before, last, block) = (self.first - 1, self.last, self.block);
        let inner = (1..)
            .map(move |ordinal| before + ordinal * block)
            .take_while(move |limit| *limit < last);
        inner.chain(std::iter::once(last))
    }

    /// The size of a block, and what was asked for when that is another.
    pub fn block_shown(&self) -> String {
        match self.block == self.block_asked {
            true => thousands(self.block),
            false => format!(
                "({}->{})",
                thousands(self.block_asked),
                thousands(self.block)
            ),
        }
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let words: Vec<&str> = text.split(' ').collect();
        if !(3..=4).contains(&words.len()) || words.contains(&"") {
            return Err(Failure::new(
                "a line has three or four integers with single blanks between",
            ));
        }
        let mut numbers = [0; 4];
        for (number, word) in numbers.iter_mut().zip(&words) {
            let digits = word.bytes().all(|byte| byte.is_ascii_digit());
            *number = match word.parse() {
                Ok(number) if digits => number,
                _ => return Err(Failure::new(format!("\"{word}\" is no positive integer"))),
            };
        }
        let [first, last, streams, block] = numbers;
        Self::new(first, last, streams, block)
    }
}

/// As it is shown: `1 100,000 4 (0->25,000)`.
impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, last, streams] = [self.first, self.last, self.streams].map(thousands);
        write!(formatter, "{first} {last} {streams} {}", self.block_shown())
    }
}

/// Reads all lines, before anything is done.
///
/// # Errors
/// What is wrong, and in which line; or that there is none.
pub fn read(input: impl BufRead) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    for (place, text) in input.lines().enumerate() {
        let text = text?;
        if text.is_empty() {
            break;
        }
        let line = Line::parse(&text)
            .map_err(|failure| Failure::new(format!("input line {}: {failure}", place + 1)))?;
        lines.push(line);
    }
    if lines.is_empty() {
        return Err(Failure::new(
            "there is no input: give lines like \"1 100000 4 5000\" (first, last, streams, block)",
        ));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn lines_end_with_the_input_or_at_an_empty_one() {
        let lines = read("1 10 4\n5 20 1 3\n\nnonsense".as_bytes()).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], Line::new(5, 20, 1, 3).unwrap());
    }

    #[test]
    fn a_block_that_is_absent_or_too_large_is_an_even_share() {
        assert_eq!(Line::new(1, 10_000, 4, 0).unwrap().block, 2_500);
        assert_eq!(Line::new(1, 10_000, 4, 9_000).unwrap().block, 2_500);
        assert_eq!(Line::new(1, 10_000, 4, 99).unwrap().block, 99);
        assert_eq!(Line::new(1, 10, 4, 0).unwrap().block, 3);
    }

    #[test]
    fn a_replaced_block_is_shown_with_what_it_replaced() {
        let shown = |block| Line::new(1, 10_000, 4, block).unwrap().to_string();
        assert_eq!(shown(0), "1 10,000 4 (0->2,500)");
        assert_eq!(shown(99), "1 10,000 4 99");
    }

    #[test]
    fn limits_end_blocks_and_the_last_one_ends_the_range() {
        let limits = |first, last, block| -> Vec<u64> {
            Line::new(first, last, 1, block).unwrap().limits().collect()
        };
        assert_eq!(limits(1, 10, 4), [4, 8, 10]);
        assert_eq!(limits(1, 8, 4), [4, 8]);
        assert_eq!(limits(5, 9, 1), [5, 6, 7, 8, 9]);
        assert_eq!(limits(5, 9, 0), [9]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert!(refused("").contains("no input"));
        assert!(refused("\n1 10 4").contains("no input"));
        assert!(refused("1 10 4\n1 10").starts_with("input line 2: "));
        for text in ["1 10", "1 10 4 5 6", "1  10 4", "1 10 4 ", " 1 10 4"] {
            assert!(refused(text).contains("three or four"), "{text:?}");
        }
        for text in ["1 10 four", "-1 10 4", "+1 10 4", "1 10 4.0"] {
            assert!(refused(text).contains("no positive integer"), "{text:?}");
        }
        assert!(refused("0 10 4").contains("above 0"));
        assert!(refused("10 10 4").contains("above its start"));
        assert!(refused("1 10000000001 4").contains("10000000000"));
        assert!(refused("1 10 0").contains("streams"));
        assert!(refused("1 10 1025").contains("streams"));
        assert!(refused("1 99999999999999999999 1").contains("no positive integer"));
    }
}
