//! A set of page numbers: a bit for each.

const BITS: u64 = u64::BITS as u64;

#[derive(Clone, Debug, Default)]
pub(super) struct PageSet {
    words: Vec<u64>,
    count: usize,
    /// No page below this word's is in the set.
    first: usize,
}

impl PageSet {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(super) fn insert(&mut self, page: u64) {
        let (word, bit) = ((page / BITS) as usize, 1 << (page % BITS));
        if word >= self.words.len() {
            self.grow(word);
        }
        self.count += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        self.first = self.first.min(word);
    }

    #[cold]
    fn grow(&mut self, word: usize) {
        self.words.resize((word + 1).max(2 * self.words.len()), 0);
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        let word = self.words.get((page / BITS) as usize);
        word.is_some_and(|word| word >> (page % BITS) & 1 == 1)
    }

    /// Takes a page out; says whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, page: u64) -> bool {
        let bit = 1 << (page % BITS);
        match self.words.get_mut((page / BITS) as usize) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes out the lowest page.
    pub(super) fn pop(&mut self) -> Option<u64> {
        while self.count > 0 {
            let word = self.words[self.first];
            if word != 0 {
                let page = self.first as u64 * BITS + u64::from(word.trailing_zeros());
                self.remove(page);
                return Some(page);
            }
            self.first += 1;
        }
        None
    }

    /// The pages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            (0..BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| at as u64 * BITS + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_out_once_and_in_order() {
        let mut set = PageSet::default();
        for page in [700, 3, 64, 3, 63] {
            set.insert(page);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 63, 64, 700]);
        assert!(set.remove(64) && !set.remove(64) && !set.remove(1 << 40));
        assert_eq!(set.pop(), Some(3));
        set.insert(1);
        let rest: Vec<u64> = std::iter::from_fn(|| set.pop()).collect();
        assert_eq!(rest, [1, 63, 700]);
        assert!(set.is_empty());
    }
}
