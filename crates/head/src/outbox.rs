//! What is done only when the rows that it tells of are safe, in order, while all else goes on. No I/O and no clock.
//!
//! - OUTBOX-1: what came of a turn is let go when the rows of that turn and of all before it are safe, or refused.
//! - OUTBOX-2: what is held is let go in the order in which it came.
//! - OUTBOX-3: rows that come while others are written go into the next batch, however many turns they are of.
//!
//! Everything that comes after an unsafe row is held, for whomever it is: it may tell of that row. Somebody looks an actor
//! up that another made a moment ago, and finds it; a worker is leased in a group that may have to be taken back. To know
//! what depends on which row, every answer would have to say what it was made from. Only what tells nobody anything is done
//! at once: the caller says of each effect which it is.

use std::collections::VecDeque;

/// Effects that wait for rows, and those that do not.
#[derive(Debug)]
pub(crate) struct Outbox<E> {
    free: Vec<E>,
    /// Each with its number.
    held: VecDeque<(u64, E)>,
    /// How many effects came so far, which is the number of the next.
    count: u64,
    is_writing: bool,
    /// From this number on, effects wait for rows that are not being written yet.
    next_batch_from: Option<u64>,
}

impl<E> Default for Outbox<E> {
    fn default() -> Self {
        Self { free: Vec::new(), held: VecDeque::new(), count: 0, is_writing: false, next_batch_from: None }
    }
}

impl<E> Outbox<E> {
    /// The number of the effect that comes next.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether rows are being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// What came of a turn, in order; `has_rows` where there are rows to write that are not being written.
    pub(crate) fn add(&mut self, effects: Vec<E>, has_rows: bool, is_quiet: impl Fn(&E) -> bool) {
        if has_rows && self.next_batch_from.is_none() {
            self.next_batch_from = Some(self.count);
        }
        for effect in effects {
            if is_quiet(&effect) {
                self.free.push(effect);
            } else {
                self.held.push_back((self.count, effect));
            }
            self.count += 1;
        }
        self.let_go();
    }

    /// All rows so far are being written.
    pub(crate) fn begin(&mut self) {
        assert!(!self.is_writing, "OUTBOX-3: one batch is written at a time");
        (self.is_writing, self.next_batch_from) = (true, None);
    }

    /// What was being written is safe.
    pub(crate) fn safe(&mut self) {
        self.is_writing = false;
        self.let_go();
    }

    /// What was being written was refused, and with it all that has come since.
    pub(crate) fn refused(&mut self) {
        (self.is_writing, self.next_batch_from) = (false, None);
        self.let_go();
    }

    /// What may be done now.
    pub(crate) fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.free)
    }

    /// A held effect by its number.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut E> {
        let place = self.held.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.held.get_mut(place).map(|(_, effect)| effect)
    }

    /// All that is held.
    pub(crate) fn held_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.held.iter_mut().map(|(_, effect)| effect)
    }

    /// The number of the first held effect that is such.
    pub(crate) fn find(&self, is_such: impl Fn(&E) -> bool) -> Option<u64> {
        self.held.iter().find(|(_, effect)| is_such(effect)).map(|(number, _)| *number)
    }

    fn let_go(&mut self) {
        if self.is_writing {
            return;
        }
        let until = self.next_batch_from.unwrap_or(self.count);
        let free = self.held.partition_point(|(number, _)| *number < until);
        self.free.extend(self.held.drain(..free).map(|(_, effect)| effect));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "an outbox shows its effects, which are large elsewhere")]
    fn quiet(effect: &u32) -> bool {
        *effect >= 100
    }

    #[test]
    fn what_tells_of_rows_waits_for_them_and_all_that_came_later_behind_it() {
        let mut outbox = Outbox::default();
        outbox.add(vec![1], false, quiet);
        assert_eq!(outbox.take(), [1], "nothing is unsafe");
        outbox.add(vec![2, 3], true, quiet);
        outbox.begin();
        outbox.add(vec![4, 100], false, quiet);
        outbox.add(vec![5], true, quiet);
        outbox.add(vec![6], false, quiet);
        assert_eq!(outbox.take(), [100], "what tells nobody anything does not wait");
        outbox.safe();
        assert_eq!(outbox.take(), [2, 3, 4], "OUTBOX-1");
        outbox.begin();
        outbox.add(vec![7], false, quiet);
        outbox.safe();
        assert_eq!(outbox.take(), [5, 6, 7]);
        assert_eq!((outbox.held(), outbox.count()), (0, 8));
    }

    #[test]
    fn what_is_held_can_be_replaced_when_its_rows_are_refused() {
        let mut outbox = Outbox::default();
        outbox.add(vec![1, 100, 2], true, quiet);
        outbox.begin();
        outbox.add(vec![3], true, quiet);
        *outbox.get_mut(2).expect("it is held") = 20;
        let number = outbox.find(|effect| *effect == 3).expect("it is held");
        *outbox.get_mut(number).expect("it is held") = 30;
        assert!(outbox.get_mut(1).is_none() && outbox.get_mut(4).is_none(), "they are not held");
        outbox.refused();
        assert_eq!(outbox.take(), [100, 1, 20, 30]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Turn { effects: u32, has_rows: bool },
        Written,
        Refused,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..4_u32, any::<bool>()).prop_map(|(effects, has_rows)| Step::Turn { effects, has_rows }),
            2 => Just(Step::Written),
            1 => Just(Step::Refused),
        ]
    }

    proptest! {
        /// Driven as the core drives it, beside a list of what is safe.
        #[test]
        fn nothing_is_let_go_before_its_rows_and_nothing_out_of_order(steps in prop::collection::vec(step(), 0..60)) {
            let mut outbox = Outbox::default();
            // The last row of each turn's effects; the rows written or refused so far; those being written.
            let (mut needs, mut rows, mut settled, mut writing) = (Vec::<u32>::new(), 0, 0, None);
            let mut taken = Vec::new();
            for step in steps.into_iter().chain([Step::Written, Step::Written]) {
                match step {
                    Step::Turn { effects, has_rows } => {
                        rows += u32::from(has_rows);
                        let first = needs.len() as u32;
                        needs.extend((0..effects).map(|_| rows));
                        outbox.add((first..first + effects).collect(), rows > writing.unwrap_or(settled), |_| false);
                    }
                    Step::Written => {
                        settled = writing.take().unwrap_or(settled);
                        outbox.safe();
                    }
                    Step::Refused => {
                        if writing.take().is_some() {
                            settled = rows;
                            outbox.refused();
                        }
                    }
                }
                if writing.is_none() && rows > settled {
                    writing = Some(rows);
                    outbox.begin();
                }
                for effect in outbox.take() {
                    prop_assert!(needs[effect as usize] <= settled, "OUTBOX-1");
                    taken.push(effect);
                }
            }
            prop_assert_eq!(taken, (0..needs.len() as u32).collect::<Vec<_>>(), "OUTBOX-2");
        }
    }
}
