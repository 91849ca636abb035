//! Seeded randomness: a run can be repeated id by id.
//!
//! The generator is Marsaglia's xorshift with a multiplied output (xorshift64*); keys are counters
//! passed through the finaliser of splitmix64, a bijection, so that they are distinct and have no order.

/// A small seeded generator.
#[derive(Debug, Clone)]
pub struct XorShift {
    // Never zero: zero is the generator's fixed point.
    state: u64,
}

impl XorShift {
    /// A generator whose numbers follow from `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self {
            state: key_of(seed) | 1,
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_bits(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`; `bound` must not be zero.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0, "nothing is below zero");
        ((u128::from(self.next_bits()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The `ordinal`th key: distinct for distinct ordinals and without any order.
#[inline]
pub fn key_of(ordinal: u64) -> u64 {
    let mut bits = ordinal.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_is_a_permutation_and_repeats_with_its_seed() {
        let mut first: Vec<u32> = (0..1_000).collect();
        let mut again = first.clone();
        XorShift::new(7).shuffle(&mut first);
        XorShift::new(7).shuffle(&mut again);
        assert_eq!(first, again);
        assert_ne!(first, (0..1_000).collect::<Vec<_>>());
        first.sort_unstable();
        assert_eq!(first, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn bounded_numbers_reach_both_ends() {
        let mut random = XorShift::new(1);
        let drawn: Vec<usize> = (0..1_000).map(|_| random.below(4)).collect();
        for wanted in 0..4 {
            assert!(drawn.contains(&wanted), "never drew {wanted}");
        }
        assert!(drawn.iter().all(|number| *number < 4));
    }
}
