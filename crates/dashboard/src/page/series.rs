//! Numbers over time, in bounded memory: where a series is full, its older half keeps every other point (pure).
//!
//! - SERIES-1: all series together have [`POINTS_MAX`] points; each has its part of them, and 720 at most.

use std::collections::{BTreeMap, VecDeque};

/// How many points there are of all series.
const POINTS_MAX: usize = 2_000_000;
/// How many points a series has.
const POINTS_OF_ONE_MAX: usize = 720;
/// How many points a series has at least, however many series there are.
const POINTS_OF_ONE_MIN: usize = 16;
/// For how long points are kept, in milliseconds.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// A point: when, and two numbers, each of which may not be known.
pub(crate) type Point = (u64, Option<f32>, Option<f32>);

/// Series by what they are of.
#[derive(Debug)]
pub(crate) struct Series<K: Ord> {
    by_key: BTreeMap<K, VecDeque<Point>>,
}

impl<K: Ord> Default for Series<K> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Series<K> {
    /// Adds a point. Where the last one is older than `gap_ms`, what is between is not known.
    pub(crate) fn push(&mut self, key: &K, point: Point, gap_ms: u64) {
        if !self.by_key.contains_key(key) {
            self.by_key.insert(key.clone(), VecDeque::new());
        }
        let most = (POINTS_MAX / self.by_key.len().max(1)).clamp(POINTS_OF_ONE_MIN, POINTS_OF_ONE_MAX);
        let Some(points) = self.by_key.get_mut(key) else { return };
        if let Some((last, ..)) = points.back().copied().filter(|last| point.0 > last.0.saturating_add(gap_ms)) {
            points.push_back((last.saturating_add(gap_ms), None, None));
        }
        points.push_back(point);
        while points.front().is_some_and(|first| first.0.saturating_add(KEPT_MS) < point.0) {
            points.pop_front();
        }
        if points.len() > most {
            thin(points, most);
        }
    }

    /// The points of one, oldest first.
    pub(crate) fn of<'series>(&'series self, key: &K) -> impl Iterator<Item = Point> + use<'series, K> {
        self.by_key.get(key).into_iter().flatten().copied()
    }

    /// Forgets those of which this says no.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.by_key.retain(|key, _| is_kept(key));
    }
}

/// Leaves out every other point of the older half, but those that say that nothing is known.
fn thin(points: &mut VecDeque<Point>, most: usize) {
    while points.len() > most {
        let half = points.len() / 2;
        let mut number = 0;
        let before = points.len();
        points.retain(|point| {
            number += 1;
            number > half || number % 2 == 1 || point.1.is_none()
        });
        if points.len() == before {
            points.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_series_keeps_its_first_and_last_points_and_less_of_what_is_old() {
        let mut series = Series::default();
        for second in 0..10_000_u64 {
            series.push(&"a", (second * 1_000, Some(second as f32), None), 5_000);
        }
        let points: Vec<Point> = series.of(&"a").collect();
        assert!(points.len() <= POINTS_OF_ONE_MAX && points.len() > POINTS_OF_ONE_MAX / 4, "{}", points.len());
        assert_eq!((points[0].0, points[points.len() - 1].0), (0, 9_999_000));
        let (old, new) = (points[1].0 - points[0].0, points[points.len() - 1].0 - points[points.len() - 2].0);
        assert!(old > new && new == 1_000, "{old} {new}");
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_silence_is_a_point_without_numbers() {
        let mut series = Series::default();
        series.push(&1, (0, Some(1.0), None), 100);
        series.push(&1, (1_000, Some(2.0), None), 100);
        assert_eq!(
            series.of(&1).collect::<Vec<_>>(),
            [(0, Some(1.0), None), (100, None, None), (1_000, Some(2.0), None)]
        );
        series.push(&1, (KEPT_MS + 500, Some(3.0), None), KEPT_MS);
        assert_eq!(series.of(&1).next().map(|point| point.0), Some(1_000));
    }

    #[test]
    fn many_series_have_few_points_each() {
        let mut series = Series::default();
        for key in 0..20_000_u32 {
            for second in 0..200 {
                series.push(&key, (second, Some(0.0), None), 100);
            }
        }
        assert_eq!(series.of(&19_999).count(), 100);
        series.retain(|key| *key == 3);
        assert_eq!((series.of(&3).count() > 0, series.of(&4).count()), (true, 0));
    }
}
