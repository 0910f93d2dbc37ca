//! Stretches as bars of a picture: what is thinner than a pixel is merged, so that a picture has no more bars than pixels (pure).
//!
//! - MERGING-1: an answer to the page has [`PIECES_MAX`] bars and points, however many devices it shows: where there would be more,
//!   its pixels are wider. So it stays below 300 KB.

use super::holdings::{Stretch, Use, WHOLE};

/// A bar: one stretch, or several that are too thin to be seen one by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bar<'held> {
    /// From when on.
    pub(crate) from_ms: u64,
    /// Until when; nothing while it lasts.
    pub(crate) to_ms: Option<u64>,
    /// Where it lies in its device's height, from the bottom.
    pub(crate) offset: u32,
    /// How much of that it takes.
    pub(crate) share: u32,
    /// What it was.
    pub(crate) used: Use,
    /// The name; empty where there are several.
    pub(crate) name: &'held str,
    /// How many stretches it is made of.
    pub(crate) count: u32,
    /// The number of the stretch, where it is one.
    pub(crate) number: Option<u64>,
}

/// A stretch of time, and how many pixels wide it is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// From when on.
    pub(crate) from_ms: u64,
    /// Until when.
    pub(crate) to_ms: u64,
    /// The pixels.
    pub(crate) pixels: u32,
}

/// The most bars, and points of lines, that an answer has (MERGING-1).
const PIECES_MAX: usize = 12_000;

/// Which nodes' devices a picture shows, and how fine it may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// The first node, as nodes are in order.
    pub(crate) first: usize,
    /// How many.
    pub(crate) count: usize,
    /// The most bars and points of all of them.
    pub(crate) pieces_max: usize,
}

impl Part {
    /// All nodes, as fine as the window says: for a file, which is read once.
    pub(crate) const WHOLE: Self = Self { first: 0, count: usize::MAX, pieces_max: usize::MAX };

    /// So many nodes, in an answer to the page.
    pub(crate) fn of(first: usize, count: usize) -> Self {
        Self { first, count, pieces_max: PIECES_MAX }
    }

    /// Whether it shows the node at that place.
    pub(crate) fn has(self, place: usize) -> bool {
        place.checked_sub(self.first).is_some_and(|place| place < self.count)
    }

    /// A window with pixels as wide as it takes for that many pieces to be no more than may be; `pieces` counts them.
    pub(crate) fn coarsened(self, mut window: Window, pieces: impl Fn(Window) -> usize) -> Window {
        while window.pixels > 1 {
            let counted = pieces(window);
            if counted <= self.pieces_max {
                break;
            }
            let wanted = u64::from(window.pixels) * self.pieces_max as u64 / counted as u64;
            window.pixels = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, window.pixels / 2);
        }
        window
    }
}

impl Window {
    /// The time that a pixel is wide, in milliseconds.
    fn pixel_ms(self) -> f64 {
        self.to_ms.saturating_sub(self.from_ms) as f64 / f64::from(self.pixels.max(1))
    }

    fn sees(self, stretch: &Stretch) -> bool {
        stretch.from_ms <= self.to_ms && stretch.to_ms.is_none_or(|to| to >= self.from_ms)
    }
}

/// The bars of a device, in the order of their begins. `until` is until when all is known.
pub(crate) fn bars<'held>(
    stretches: impl Iterator<Item = &'held Stretch>,
    window: Window,
    until_ms: u64,
) -> Vec<Bar<'held>> {
    let mut seen: Vec<&Stretch> = stretches.filter(|stretch| window.sees(stretch)).collect();
    seen.sort_by_key(|stretch| (stretch.from_ms, stretch.offset));
    let pixel = window.pixel_ms();
    let (mut bars, mut thin): (Vec<Bar<'held>>, Option<Bar<'held>>) = (Vec::new(), None);
    for stretch in seen {
        let to = stretch.to_ms.unwrap_or(until_ms).max(stretch.from_ms);
        if (to - stretch.from_ms) as f64 >= pixel {
            bars.push(whole(stretch));
        } else if let Some(last) = thin.as_mut().filter(|last| is_near(last, stretch, pixel, until_ms)) {
            merge(last, stretch, until_ms);
        } else {
            bars.extend(thin.replace(whole(stretch)));
        }
    }
    bars.extend(thin);
    bars.sort_by_key(|bar| (bar.from_ms, bar.offset));
    bars
}

fn whole(stretch: &Stretch) -> Bar<'_> {
    Bar {
        from_ms: stretch.from_ms,
        to_ms: stretch.to_ms,
        offset: stretch.offset,
        share: stretch.share,
        used: stretch.used,
        name: &stretch.holder.name,
        count: 1,
        number: Some(stretch.number),
    }
}

/// Whether less than a pixel is between them.
fn is_near(last: &Bar<'_>, stretch: &Stretch, pixel: f64, until_ms: u64) -> bool {
    let end = last.to_ms.unwrap_or(until_ms);
    (stretch.from_ms.saturating_sub(end) as f64) < pixel
}

fn merge<'held>(bar: &mut Bar<'held>, stretch: &'held Stretch, until_ms: u64) {
    let top = (bar.offset + bar.share).max(stretch.offset + stretch.share).min(WHOLE);
    bar.offset = bar.offset.min(stretch.offset);
    bar.share = top - bar.offset;
    let ends = (bar.to_ms, stretch.to_ms);
    bar.to_ms = ends.0.zip(ends.1).map(|(one, other)| one.max(other));
    if bar.to_ms.is_none() && until_ms == 0 {
        bar.to_ms = Some(bar.from_ms);
    }
    // The worst of them is what must be seen.
    bar.used = bar.used.max(stretch.used);
    if bar.name != &*stretch.holder.name {
        bar.name = "";
    }
    bar.count += 1;
    bar.number = None;
}

#[cfg(test)]
mod tests {
    use super::super::holdings::Holder;
    use super::*;

    fn stretch(number: u64, from_ms: u64, to_ms: Option<u64>, name: &str) -> Stretch {
        let holder = Holder { name: name.into(), ..Holder::default() };
        Stretch { number, from_ms, to_ms, used: Use::Held, offset: 0, share: WHOLE, holder }
    }

    /// From when on, until when, its name, how many it is made of, and its number.
    type Told = (u64, Option<u64>, String, u32, Option<u64>);

    fn told(stretches: &[Stretch], window: Window) -> Vec<Told> {
        let bars = bars(stretches.iter(), window, 1_000);
        bars.into_iter().map(|bar| (bar.from_ms, bar.to_ms, bar.name.to_owned(), bar.count, bar.number)).collect()
    }

    #[test]
    fn what_is_wide_enough_stays_as_it_is() {
        let window = Window { from_ms: 0, to_ms: 1_000, pixels: 100 };
        let wide = [stretch(1, 0, Some(10), "a"), stretch(2, 12, None, "b"), stretch(3, 2_000, Some(2_100), "later")];
        let expected = [(0, Some(10), "a".to_owned(), 1, Some(1)), (12, None, "b".to_owned(), 1, Some(2))];
        assert_eq!(told(&wide, window), expected);
    }

    #[test]
    fn thin_ones_that_are_near_each_other_become_one_and_others_do_not() {
        let window = Window { from_ms: 0, to_ms: 1_000, pixels: 10 };
        let thin = [
            stretch(1, 0, Some(20), "a"),
            stretch(2, 30, Some(60), "a"),
            stretch(3, 70, Some(90), "b"),
            stretch(4, 400, Some(420), "c"),
        ];
        let expected = [(0, Some(90), String::new(), 3, None), (400, Some(420), "c".to_owned(), 1, Some(4))];
        assert_eq!(told(&thin, window), expected);
    }

    #[test]
    fn a_picture_has_no_more_bars_than_pixels() {
        let many: Vec<Stretch> = (0..50_000).map(|n| stretch(n, 10 * n, Some(10 * n + 9), "a")).collect();
        let window = Window { from_ms: 0, to_ms: 500_000, pixels: 300 };
        let bars = bars(many.iter(), window, 500_000);
        assert!(bars.len() <= 300, "{}", bars.len());
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u32>(), 50_000);
    }

    #[test]
    fn where_there_are_too_many_bars_pixels_are_wider() {
        let many: Vec<Stretch> = (0..50_000).map(|n| stretch(n, 10 * n, Some(10 * n + 9), "a")).collect();
        let fine = Window { from_ms: 0, to_ms: 500_000, pixels: 4_000 };
        let count = |window| bars(many.iter(), window, 500_000).len();
        for most in [3_000, 100, 1] {
            let part = Part { pieces_max: most, ..Part::WHOLE };
            let coarse = part.coarsened(fine, count);
            assert!(count(coarse) <= most && coarse.pixels as usize * 4 >= most, "{most}: {coarse:?}");
        }
        assert_eq!(Part::WHOLE.coarsened(fine, count).pixels, 4_000);
        assert_eq!([2, 3, 5, 6].map(|place| Part::of(3, 3).has(place)), [false, true, true, false]);
    }

    #[test]
    fn of_merged_ones_the_worst_is_seen() {
        let mut ill = stretch(2, 5, Some(6), "Xid 79");
        ill.used = Use::Quarantined;
        let both = [stretch(1, 0, Some(4), "a"), ill];
        let bars = bars(both.iter(), Window { from_ms: 0, to_ms: 10_000, pixels: 10 }, 10_000);
        assert_eq!(bars.iter().map(|bar| (bar.used, bar.share)).collect::<Vec<_>>(), [(Use::Quarantined, WHOLE)]);
    }
}
