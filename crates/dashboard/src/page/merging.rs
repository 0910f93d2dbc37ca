//! Stretches as bars of a picture: what is thinner than a pixel is merged, so that a picture has no more bars than pixels (pure).

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
    fn of_merged_ones_the_worst_is_seen() {
        let mut ill = stretch(2, 5, Some(6), "Xid 79");
        ill.used = Use::Quarantined;
        let both = [stretch(1, 0, Some(4), "a"), ill];
        let bars = bars(both.iter(), Window { from_ms: 0, to_ms: 10_000, pixels: 10 }, 10_000);
        assert_eq!(bars.iter().map(|bar| (bar.used, bar.share)).collect::<Vec<_>>(), [(Use::Quarantined, WHOLE)]);
    }
}
