//! How many attempts of calls ended in this process, by name, for the cluster's counters.
//!
//! - ENDED-1: each attempt that ended is counted once, however many there are, and told once.
//! - ENDED-2: at most [`ALIKE_MAX`] combinations of name, attempt and end are counted apart between two tellings; the others
//!   together, without a name.

use oxiray_wire::message::EndedCalls as Told;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How many combinations are counted apart.
const ALIKE_MAX: usize = 200;

/// Attempts that are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Alike {
    name: Arc<str>,
    is_method: bool,
    is_retry: bool,
    has_failed: bool,
}

/// The counts since they were told last.
#[derive(Debug, Default)]
pub(crate) struct EndedCalls {
    /// What ended last, and how many of it in a row: most calls are as the one before.
    last: Option<(Alike, u64)>,
    earlier: FxHashMap<Alike, u64>,
    /// The class of the actor that this process is: its methods are told with it, as lists name them.
    pub(crate) class: String,
}

impl EndedCalls {
    /// An attempt ended: of what goes by this name, or of the method of this process's actor that does.
    pub(crate) fn add(&mut self, name: &Arc<str>, is_method: bool, is_retry: bool, has_failed: bool) {
        if let Some((alike, count)) = &mut self.last
            && (alike.is_method, alike.is_retry, alike.has_failed) == (is_method, is_retry, has_failed)
            && (Arc::ptr_eq(&alike.name, name) || alike.name == *name)
        {
            *count += 1;
            return;
        }
        self.put_away();
        self.last = Some((Alike { name: Arc::clone(name), is_method, is_retry, has_failed }, 1));
    }

    /// The last ones are among the earlier ones.
    fn put_away(&mut self) {
        let Some((mut alike, count)) = self.last.take() else { return };
        if self.earlier.len() >= ALIKE_MAX && !self.earlier.contains_key(&alike) {
            (alike.name, alike.is_method) = (Arc::from(""), false);
        }
        *self.earlier.entry(alike).or_default() += count;
    }

    /// What was counted since it was taken last.
    pub(crate) fn take(&mut self) -> Vec<Told> {
        self.put_away();
        let class = &self.class;
        let told = |(alike, count): (Alike, u64)| Told {
            name: if alike.is_method { format!("{class}.{}", alike.name) } else { alike.name.as_ref().into() },
            is_retry: alike.is_retry,
            has_failed: alike.has_failed,
            count,
        };
        let mut told: Vec<Told> = self.earlier.drain().map(told).collect();
        told.sort_unstable_by(|one, other| {
            (&one.name, one.is_retry, one.has_failed).cmp(&(&other.name, other.is_retry, other.has_failed))
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(counts: &mut EndedCalls) -> Vec<(String, bool, bool, u64)> {
        counts.take().into_iter().map(|told| (told.name, told.is_retry, told.has_failed, told.count)).collect()
    }

    #[test]
    fn each_is_counted_once_by_name_attempt_and_end() {
        let mut counts = EndedCalls::default();
        let [one, other, again] = ["one", "other", "one"].map(Arc::<str>::from);
        for name in [&one, &one, &other, &again] {
            counts.add(name, false, false, false);
        }
        counts.add(&one, false, true, false);
        counts.add(&one, false, true, true);
        counts.add(&one, false, false, false);
        let expected = [
            ("one".to_owned(), false, false, 4),
            ("one".to_owned(), true, false, 1),
            ("one".to_owned(), true, true, 1),
            ("other".to_owned(), false, false, 1),
        ];
        assert_eq!(told(&mut counts), expected);
        assert_eq!(told(&mut counts), [], "it was told");
    }

    #[test]
    fn methods_are_told_with_their_class_and_what_has_a_name_of_its_own_is_not() {
        let mut counts = EndedCalls { class: "Counter".to_owned(), ..EndedCalls::default() };
        let name = Arc::<str>::from("next");
        for is_method in [true, true, false] {
            counts.add(&name, is_method, false, false);
        }
        let expected = [("Counter.next", 2), ("next", 1)].map(|(name, count)| (name.to_owned(), false, false, count));
        assert_eq!(told(&mut counts), expected);
    }

    #[test]
    fn names_are_bounded_and_nothing_is_lost() {
        let mut counts = EndedCalls::default();
        for number in 0..2 * ALIKE_MAX {
            counts.add(&format!("{number:03}").into(), false, false, false);
        }
        let told = told(&mut counts);
        assert_eq!((told.len(), told[0].clone()), (ALIKE_MAX + 1, (String::new(), false, false, ALIKE_MAX as u64)));
    }
}
