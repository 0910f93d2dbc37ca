//! That this process is to end early, for what is more urgent.

use crate::core::client::Client;
use crate::core::draining::Preempted;
use crate::core::io::Io;
use crate::core::signals::ClientEvent;
use oxiray_wire::message::Preemption;
use std::time::Duration;

impl<I: Io> Client<I> {
    pub(crate) fn preempted(&mut self, said: Preemption) {
        if said.is_over {
            return self.goes_on_after_all();
        }
        let told = Preempted { until: self.now + Duration::from_millis(said.left_ms), reason: said.reason };
        // What was said first stands: the second word is that it is to end now.
        let told = self.daemon.preempted.get_or_insert(told).clone();
        self.signals.tell(ClientEvent::Preempted { told: Some(told), ends_now: said.ends_now });
    }

    /// It does not end early, or the head that said so is gone.
    pub(crate) fn goes_on_after_all(&mut self) {
        if self.daemon.preempted.take().is_some() {
            self.signals.tell(ClientEvent::Preempted { told: None, ends_now: false });
        }
    }
}
