//! How a [`Call`] is read, which is what a worker hears most.

use super::Call;
use crate::field::Nested as _;
use bytes::Bytes;
use oxiray_ids::TaskId;
use prost::{DecodeError, Message as _};

/// Keys of fields, with how they are written, as they stand in a body.
mod key {
    pub(super) const TASK: u8 = 1 << 3 | 2;
    pub(super) const FUNCTION: u8 = 2 << 3 | 2;
    pub(super) const NAME: u8 = 3 << 3 | 2;
    pub(super) const ARGUMENTS: u8 = 4 << 3 | 2;
    pub(super) const RESULTS: u8 = 6 << 3;
}

impl Call {
    /// Reads a body where the call is to lie. What nearly all calls consist of, short fields, is read right here; from the
    /// first other one on, the rest is read as that of any message.
    pub(super) fn read(body: &Bytes) -> Result<Box<Self>, DecodeError> {
        let mut call = Box::<Self>::default();
        let mut at = 0;
        while let Some([key, number]) = body.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
            // More than that takes further bytes.
            if *number >= 0x80 {
                break;
            }
            let start = at + 2;
            let end = start + usize::from(*number);
            match *key {
                key::RESULTS => {
                    call.results = u32::from(*number);
                    at = start;
                    continue;
                }
                _ if end > body.len() => break,
                key::TASK => match TaskId::from_slice(&body[start..end]) {
                    Some(task) if !task.is_nil() => call.task = task,
                    _ => break,
                },
                key::FUNCTION => call.function = body.slice(start..end),
                key::ARGUMENTS => call.arguments = body.slice(start..end),
                key::NAME => match std::str::from_utf8(&body[start..end]) {
                    Ok(name) => name.clone_into(&mut call.name),
                    Err(_) => break,
                },
                _ => break,
            }
            at = end;
        }
        if at < body.len() {
            call.merge(body.slice(at..))?;
        }
        call.check()?;
        Ok(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::StreamTerms;

    fn calls() -> Vec<Call> {
        let short = Call {
            task: TaskId::new([7; 24]),
            function: Bytes::from_static(&[8; 32]),
            name: "näme".into(),
            arguments: Bytes::from_static(&[9; 127]),
            results: 1,
            ..Call::default()
        };
        let long = Call { arguments: Bytes::from(vec![1; 128]), results: 128, label: "label".into(), ..short.clone() };
        let stream = Some(StreamTerms { ahead: 1, per_yield: 2, arrived: 3, read: 4 });
        let other = Call { group: "group".into(), attempt: 3, retries: -1, stream, ..short.clone() };
        let least = Call { task: TaskId::new([6; 24]), ..Call::default() };
        vec![least, short, long, other]
    }

    /// What both say of a body.
    fn both(body: &Bytes) -> (Result<Call, DecodeError>, Result<Call, DecodeError>) {
        (Call::read(body).map(|call| *call), super::super::read(body.clone()))
    }

    #[test]
    fn a_call_is_read_as_any_message_is() {
        for first in calls() {
            for second in calls() {
                // Messages that stand one behind the other are read as one.
                let body: Bytes = [first.encode_to_vec(), second.encode_to_vec()].concat().into();
                let (read, decoded) = both(&body);
                assert_eq!(read, decoded);
                assert!(read.is_ok());
            }
        }
    }

    #[test]
    fn a_damaged_call_is_refused_where_any_message_is() {
        for call in calls() {
            let whole = call.encode_to_vec();
            for length in 0..whole.len() {
                let (read, decoded) = both(&Bytes::copy_from_slice(&whole[..length]));
                assert_eq!(read.ok(), decoded.ok(), "cut to {length} bytes");
            }
            for at in 0..whole.len() {
                for byte in [0, 1, 0x0a, 0x1a, 0x30, 0x7f, 0x80, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] = byte;
                    let (read, decoded) = both(&damaged.into());
                    assert_eq!(read.ok(), decoded.ok(), "{byte} at {at}");
                }
            }
        }
    }
}
