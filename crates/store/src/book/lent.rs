//! Room that is lent to a client ahead, for an object that it may write next.
//!
//! - LENT-1: what is lent ahead is room like any other against the capacity, and counts as pooled in the figures, until
//!   its writer seals the object or gives it up, or is gone.
//! - LENT-2: room is lent ahead only where nobody waits for room and half of what segments may take stays free of objects and of
//!   what is lent: nothing is moved to disk for it, and nobody waits for it.

use super::{Book, ClientId, Object, ObjectId, Place, StoreError, Ticket, Waiting};

/// Which part of what segments may take objects and what is lent ahead may take together.
const LENT_PART: u64 = 2;

impl Book {
    /// As [`Book::create`], but answered at once: where it would cost anybody anything, it is refused.
    pub(crate) fn create_ahead(&mut self, ticket: Ticket, client: ClientId, object: ObjectId, size: u64) {
        if let Some(error) = self.refuse_foreign(client, object) {
            return self.refuse(ticket, client, error);
        }
        let class = self.capacity_for(size);
        let Some(capacity) =
            class.filter(|capacity| self.is_to_spare(*capacity) && !self.objects.contains_key(&object))
        else {
            return self.refuse(ticket, client, StoreError::NothingToSpare { asked: size });
        };
        self.lent += capacity;
        let place = Place::Queued(ticket);
        self.objects.insert(object, Object { size, capacity, place, is_lent: true, kept: None, waiters: Vec::new() });
        self.waiting.insert(ticket, Waiting { client, object });
        self.grant_create(object);
    }

    /// LENT-2.
    fn is_to_spare(&self, capacity: u64) -> bool {
        self.queue.is_empty() && self.segments.used() + capacity <= self.segments.bound() / LENT_PART
    }

    /// The object is written, or will not be.
    pub(super) fn no_longer_lent(&mut self, object: ObjectId) {
        if let Some(known) = self.objects.get_mut(&object).filter(|known| known.is_lent) {
            known.is_lent = false;
            self.lent -= known.capacity;
        }
    }
}
