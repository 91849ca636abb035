//! A set of operating-system numbers: PUs or NUMA nodes.
//!
//! Numbers are sparse, may start above 0 and may pass 1,024, so nothing here is a fixed mask. The
//! text form is the kernel's list form (`0-3,8`), read and written; the serialised form is a plain
//! array of numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest number that a list may hold; a guard against absurd ranges in damaged files.
const NUMBER_MAX: u32 = 1 << 20;

/// A set of PU or NUMA node numbers as the operating system counts them.
#[derive(Clone, Default, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub struct NumberSet {
    /// Bit `n % 64` of word `n / 64` stands for number `n`. Trailing words may be 0.
    words: Vec<u64>,
}

impl NumberSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number. Numbers above 2^20 are left out: no machine has them.
    pub fn insert(&mut self, number: u32) {
        if number > NUMBER_MAX {
            return;
        }
        let word = number as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % 64);
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// Whether the number is a member.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.words
            .get(number as usize / 64)
            .is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The smallest member.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// All members, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// Members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self {
            words: words.collect(),
        }
    }

    /// Members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() {
            (self, other)
        } else {
            (other, self)
        };
        let mut union = long.clone();
        for (word, more) in union.words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        union
    }

    /// Members of this set that the other lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        for (word, gone) in left.words.iter_mut().zip(&other.words) {
            *word &= !gone;
        }
        left
    }

    /// Whether every member of this set is in the other one too.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().enumerate().all(|(index, word)| {
            let cover = other.words.get(index).copied().unwrap_or(0);
            word & !cover == 0
        })
    }

    /// Whether the sets share a member.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Reads the kernel's list form, for example `0-3,8,10-14:2`. Blank text is the empty set.
    ///
    /// # Errors
    /// A sentence that names the part that is no number or range.
    pub fn from_list(text: &str) -> Result<Self, String> {
        let mut set = Self::new();
        for part in text.trim().split(',').map(str::trim) {
            if part.is_empty() {
                continue;
            }
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step, part)?.max(1)),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first, part)?, number(last, part)?),
                None => (number(range, part)?, number(range, part)?),
            };
            if last < first {
                return Err(format!("`{part}` runs backwards"));
            }
            for member in (first..=last).step_by(step as usize) {
                set.insert(member);
            }
        }
        Ok(set)
    }

    /// Reads the kernel's mask form: groups of eight hexadecimal digits, highest first.
    ///
    /// # Errors
    /// A sentence that names the group that is not hexadecimal.
    pub fn from_mask(text: &str) -> Result<Self, String> {
        let mut set = Self::new();
        for (group, digits) in text.trim().split(',').rev().enumerate() {
            let word = u32::from_str_radix(digits.trim().trim_start_matches("0x"), 16)
                .map_err(|_| format!("`{digits}` is not a mask"))?;
            for bit in (0..32).filter(|bit| word & (1 << bit) != 0) {
                set.insert(group as u32 * 32 + bit);
            }
        }
        Ok(set)
    }
}

/// One number of a list.
fn number(text: &str, part: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(number) if number <= NUMBER_MAX => Ok(number),
        Ok(_) => Err(format!("`{part}` is above {NUMBER_MAX}")),
        Err(_) => Err(format!("`{part}` is no number and no range")),
    }
}

impl PartialEq for NumberSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_subset(other) && other.is_subset(self)
    }
}

impl FromIterator<u32> for NumberSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::new();
        for number in numbers {
            set.insert(number);
        }
        set
    }
}

impl From<Vec<u32>> for NumberSet {
    fn from(numbers: Vec<u32>) -> Self {
        numbers.into_iter().collect()
    }
}

impl From<NumberSet> for Vec<u32> {
    fn from(set: NumberSet) -> Self {
        set.iter().collect()
    }
}

impl fmt::Display for NumberSet {
    /// The kernel's list form; `none` for the empty set.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.iter().peekable();
        if members.peek().is_none() {
            return formatter.write_str("none");
        }
        let mut separator = "";
        while let Some(first) = members.next() {
            let mut last = first;
            while members.peek() == Some(&(last + 1)) {
                last += 1;
                members.next();
            }
            match last - first {
                0 => write!(formatter, "{separator}{first}")?,
                _ => write!(formatter, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for NumberSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::NumberSet;

    #[test]
    fn list_form_is_read_and_written_back() {
        for text in ["0", "0-3,8", "2,4", "1023-1025,4095"] {
            assert_eq!(NumberSet::from_list(text).unwrap().to_string(), text);
        }
        assert_eq!(
            NumberSet::from_list("0-6:2").unwrap().to_string(),
            "0,2,4,6"
        );
        assert_eq!(NumberSet::from_list("\n").unwrap().to_string(), "none");
    }

    #[test]
    fn damaged_lists_are_named() {
        for text in ["x", "3-1", "1-", "-2", "0-99999999", "1,,a"] {
            let error = NumberSet::from_list(text).unwrap_err();
            assert!(error.contains('`'), "{text}: {error}");
        }
    }

    #[test]
    fn mask_form_counts_groups_from_the_right() {
        let set = NumberSet::from_mask("00000001,80000000\n").unwrap();
        assert_eq!(set.to_string(), "31-32");
    }

    #[test]
    fn sets_of_different_width_compare_by_members() {
        let mut wide: NumberSet = [1, 700].into_iter().collect();
        wide.remove(700);
        let narrow: NumberSet = [1].into_iter().collect();
        assert_eq!(wide, narrow);
        assert!(wide.is_subset(&narrow) && narrow.intersects(&wide));
        assert!(
            wide.union(&NumberSet::from_list("64").unwrap())
                .contains(64)
        );
        assert!(narrow.difference(&wide).is_empty());
    }
}
