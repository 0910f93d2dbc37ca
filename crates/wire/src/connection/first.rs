//! The first message on a connection, waited for: what answers a greeting, or says what a process is to be.

use super::{Connection, ConnectionError, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Instant;

impl Connection {
    /// Sends what is queued, and waits for the first message: that, and what came behind it. `None` where nothing came in
    /// time. What came before the end of the stream is told first.
    pub fn first_message(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<(Received, Vec<Received>)>, ConnectionError> {
        let mut inbox = Vec::new();
        loop {
            // Where it cannot be sent, reading tells why, after what the peer has said.
            let is_sent = self.flush().unwrap_or(true);
            let over = self.receive(&mut inbox).err();
            if !inbox.is_empty() {
                let first = inbox.remove(0);
                return Ok(Some((first, inbox)));
            }
            if let Some(error) = over {
                return Err(error);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let wanted = if is_sent { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            let limit =
                left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            // A signal ends the wait early; there is another look then.
            let _ = poll(&mut [PollFd::new(&*self, wanted)], limit.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use crate::message::{Hello, Refused};
    use std::time::Duration;

    fn pair() -> (Connection, Connection) {
        let (near, far) = Connection::pair().expect("a pair");
        (near, Connection::new(far).expect("a socket"))
    }

    #[test]
    fn the_first_message_is_told_from_those_behind_it_and_before_the_end() {
        let (mut near, mut far) = pair();
        for text in ["first", "second"] {
            far.send(&Refused { text: text.into() });
        }
        assert!(far.flush().expect("sent"));
        drop(far);
        // What is queued can be sent no more, and what was said is heard all the same.
        near.send(&Hello::default());
        let (first, behind) = near.first_message(None).expect("it came").expect("it came");
        assert!(matches!(&first.message, Message::Refused(said) if said.text == "first"), "{first:?}");
        assert!(matches!(&behind[..], [Received { message: Message::Refused(said), .. }] if said.text == "second"));
        assert!(matches!(near.first_message(None), Err(ConnectionError::Closed)));
    }

    #[test]
    fn what_is_queued_is_sent_and_silence_has_an_end() {
        let (mut near, mut far) = pair();
        near.send(&Hello { token: "secret".into(), ..Hello::default() });
        let until = Instant::now() + Duration::from_millis(20);
        assert!(near.first_message(Some(until)).expect("the stream lives").is_none());
        assert!(Instant::now() >= until);
        let (hello, _) = far.first_message(None).expect("it came").expect("it came");
        assert!(matches!(&hello.message, Message::Hello(hello) if hello.token == "secret"), "{hello:?}");
    }
}
