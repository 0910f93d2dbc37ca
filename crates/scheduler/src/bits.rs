//! Sets of small numbers, as bits.

/// A set of numbers; as large as its largest member ever was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: u32,
}

impl Bits {
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Puts the number in, or takes it out.
    pub(crate) fn set(&mut self, number: u32, is_member: bool) {
        if self.contains(number) == is_member {
            return;
        }
        let word = number as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] ^= 1 << (number % 64);
        if is_member {
            self.count += 1;
        } else {
            self.count -= 1;
        }
    }

    /// The set of these.
    pub(crate) fn of(numbers: impl Iterator<Item = u32>) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.set(number, true);
        }
        set
    }

    /// The numbers that are in this set and in the other.
    #[must_use]
    pub(crate) fn and(mut self, other: &Self) -> Self {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(index).copied().unwrap_or(0);
        }
        self.count = self.words.iter().map(|word| word.count_ones()).sum();
        self
    }

    /// Takes these out.
    pub(crate) fn remove_all(&mut self, numbers: &[u32]) {
        for number in numbers {
            self.set(*number, false);
        }
    }

    /// How many numbers are in it.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Its numbers, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.words).flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    index * 64 + bit
                })
            })
        })
    }

    /// The first number from `from` on that is in this set and in all `others`.
    pub(crate) fn first_in_all(&self, others: &[&Bits], from: u32) -> Option<u32> {
        let begin = from as usize / 64;
        let words = self.words.get(begin..)?;
        words.iter().enumerate().find_map(|(offset, word)| {
            let index = begin + offset;
            let of = |other: &&Bits| other.words.get(index).copied().unwrap_or(0);
            let mut common = others.iter().fold(*word, |common, other| common & of(other));
            if offset == 0 {
                common &= u64::MAX << (from % 64);
            }
            (common != 0).then(|| index as u32 * 64 + common.trailing_zeros())
        })
    }
}
