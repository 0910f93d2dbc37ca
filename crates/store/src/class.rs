//! Size classes: how large a segment an object gets.
//!
//! Eight classes to each doubling, so that a segment is less than an eighth larger than its object while objects of
//! about one size still share segments.

/// The smallest segment, unless the store is told otherwise: most smaller objects travel inside messages.
pub(crate) const SMALLEST: u64 = 64 << 10;
const PAGE: u64 = 4096;

/// The bytes of the segment for an object of `size`, at least `smallest` and at most `limit`; `None` where the object itself
/// is larger. Both are whole pages.
pub(crate) fn segment_capacity(size: u64, smallest: u64, limit: u64) -> Option<u64> {
    let class = if size <= smallest {
        smallest
    } else {
        let below = 1_u64 << (size - 1).ilog2();
        size.checked_next_multiple_of((below / 8).max(PAGE))?
    };
    if class <= limit {
        return Some(class);
    }
    // An object almost as large as the store fits exactly or not at all.
    size.max(1).checked_next_multiple_of(PAGE).filter(|&exact| exact <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_at_their_edges() {
        for (size, class) in [
            (0, SMALLEST),
            (SMALLEST, SMALLEST),
            (SMALLEST + 1, SMALLEST + (8 << 10)),
            (101 << 10, 104 << 10),
            (100 << 20, 104 << 20),
            (1 << 30, 1 << 30),
        ] {
            assert_eq!(segment_capacity(size, SMALLEST, u64::MAX), Some(class), "{size}");
        }
    }

    #[test]
    fn the_last_object_before_the_limit_still_fits() {
        let limit = 1_000_000 / PAGE * PAGE;
        assert_eq!(segment_capacity(limit, SMALLEST, limit), Some(limit));
        assert_eq!(segment_capacity(limit - 1, SMALLEST, limit), Some(limit));
        assert_eq!(segment_capacity(limit + 1, SMALLEST, limit), None);
        assert_eq!(segment_capacity(u64::MAX, SMALLEST, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn waste_stays_below_an_eighth(size in SMALLEST..1_u64 << 50) {
            let class = segment_capacity(size, SMALLEST, u64::MAX).unwrap();
            prop_assert!(class >= size);
            prop_assert!(class - size < size.div_ceil(8));
            prop_assert_eq!(class % PAGE, 0);
            prop_assert_eq!(segment_capacity(class, SMALLEST, u64::MAX), Some(class));
        }
    }
}
