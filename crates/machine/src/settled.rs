//! Whether anything was told to a state machine since it settled.

use std::ops::{Deref, DerefMut};

/// A state machine that is settled after batches of events, and need not be where none of them was for it.
///
/// Whoever may change it tells it something; what changes nothing that it would act on is said [quietly](Self::quietly).
#[derive(Debug)]
pub struct Settled<T> {
    machine: T,
    is_told: bool,
}

impl<T> Settled<T> {
    /// A machine that has yet to settle for the first time.
    pub fn new(machine: T) -> Self {
        Self { machine, is_told: true }
    }

    /// The machine, for what nothing follows from until it is told something else, or its alarm rings: what time it is.
    pub fn quietly(&mut self) -> &mut T {
        &mut self.machine
    }

    /// Whether it is to settle. The answer counts as done: it was told nothing from here on.
    pub fn take_told(&mut self) -> bool {
        std::mem::take(&mut self.is_told)
    }

    /// Tells it something that may be no news to it, which the answer says.
    pub fn tell(&mut self, tell: impl FnOnce(&mut T) -> bool) -> bool {
        let is_news = tell(&mut self.machine);
        self.is_told |= is_news;
        is_news
    }

    /// Has it settle where it was told something or its alarm rings, and returns what is to be done. It settles again after
    /// that, until nothing is.
    pub fn settle_where<E>(&mut self, alarm_rings: bool, settle: impl FnOnce(&mut T) -> Vec<E>) -> Vec<E> {
        if !self.take_told() && !alarm_rings {
            return Vec::new();
        }
        let made = settle(&mut self.machine);
        self.is_told = !made.is_empty();
        made
    }
}

impl<T> Deref for Settled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.machine
    }
}

impl<T> DerefMut for Settled<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_told = true;
        &mut self.machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_change_a_machine_has_it_settle() {
        let mut machine = Settled::new(vec![1]);
        assert!(machine.take_told(), "it has never settled");
        assert_eq!(machine.len(), 1);
        machine.quietly().clear();
        assert!(!machine.take_told());
        machine.push(2);
        assert!(machine.take_told());
        assert!(!machine.take_told());
        assert!(machine.tell(|_| true) && machine.take_told());
        assert!(!machine.tell(|_| false) && !machine.take_told());
    }

    #[test]
    fn it_settles_until_nothing_is_to_be_done() {
        let mut machine = Settled::new(vec![1, 2]);
        let settle = |machine: &mut Vec<u32>| machine.pop().into_iter().collect::<Vec<_>>();
        assert_eq!(machine.settle_where(false, settle), [2]);
        assert_eq!(machine.settle_where(false, settle), [1]);
        assert!(machine.settle_where(false, settle).is_empty());
        let unasked = |_: &mut Vec<u32>| -> Vec<u32> { panic!("nothing was told") };
        assert!(machine.settle_where(false, unasked).is_empty());
        assert_eq!(machine.settle_where(true, |_| vec![3]), [3], "its alarm rings");
    }
}
