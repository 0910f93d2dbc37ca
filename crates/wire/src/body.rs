//! What frames are written from: messages, calls whose greater part was written before, and replies of parts.

use crate::field::{self, Field as _};
use crate::message::{ArgumentReference, Call, CallOrigin, Message, Numbered, Reply, StreamTerms, Value};
use bytes::{BufMut, Bytes, BytesMut};
use oxiray_ids::{ObjectId, TaskId};
use prost::Message as _;
use prost::encoding::{self, WireType};

/// Bodies up to this size are written into memory that is there already: cheaper than growing by each field, as long as
/// clearing that memory costs nothing.
const FILLED_BYTES: usize = 512;

/// Something that can be written as the body of a frame.
pub trait Body {
    /// The number that stands for it in the frame's header.
    fn kind(&self) -> u16;
    /// How many bytes it takes.
    fn body_bytes(&self) -> usize;
    /// Appends it.
    fn append_body(&self, buffer: &mut BytesMut);
}

impl Body for Message {
    fn kind(&self) -> u16 {
        Self::kind(self)
    }

    fn body_bytes(&self) -> usize {
        Self::body_bytes(self)
    }

    fn append_body(&self, buffer: &mut BytesMut) {
        Self::append_body(self, buffer);
    }
}

/// What writes itself field by field.
trait Fields {
    const KIND: u16;
    fn length(&self) -> usize;
    /// Writes just so many bytes.
    fn write(&self, buffer: &mut impl BufMut);
}

impl<F: Fields> Body for F {
    fn kind(&self) -> u16 {
        F::KIND
    }

    fn body_bytes(&self) -> usize {
        self.length()
    }

    fn append_body(&self, buffer: &mut BytesMut) {
        let (start, length) = (buffer.len(), self.length());
        if length > FILLED_BYTES {
            return self.write(buffer);
        }
        buffer.resize(start + length, 0);
        self.write(&mut &mut buffer[start..]);
    }
}

impl<M: Numbered + prost::Message> Fields for M {
    const KIND: u16 = <M as Numbered>::KIND;

    fn length(&self) -> usize {
        self.encoded_len()
    }

    fn write(&self, buffer: &mut impl BufMut) {
        self.encode_raw(buffer);
    }
}

/// A [`Call`] on its way out, of parts that lie elsewhere: nothing is copied but into the frame.
///
/// Messages that stand one behind the other are read as one, so that what all calls of a function have in common is
/// written once, by [`CallFrame::common`].
#[derive(Debug)]
pub struct CallFrame<'call> {
    /// What it has in common with other calls.
    pub common: &'call [u8],
    /// Its task.
    pub task: TaskId,
    /// Its serialized arguments; empty for none.
    pub arguments: &'call [u8],
    /// Its arguments that are given as references.
    pub references: &'call [ArgumentReference],
    /// Which attempt it is, counted from 0.
    pub attempt: u32,
    /// How often an actor's method is run again where it runs.
    pub retries: i32,
    /// Set where its results come one by one.
    pub stream: Option<StreamTerms>,
    /// Who called, and when.
    pub origin: CallOrigin,
}

impl CallFrame<'_> {
    /// What calls have in common: all that `call` says.
    pub fn common(call: &Call) -> Bytes {
        call.encode_to_vec().into()
    }
}

/// The fields' numbers are those of [`Call`] and [`Reply`].
mod tag {
    pub(super) const TASK: u32 = 1;
    pub(super) const ARGUMENTS: u32 = 4;
    pub(super) const REFERENCES: u32 = 5;
    pub(super) const ATTEMPT: u32 = 9;
    pub(super) const RETRIES: u32 = 11;
    pub(super) const STREAM: u32 = 14;
    pub(super) const ORIGIN: u32 = 15;

    pub(super) const RESULTS: u32 = 2;
    pub(super) const KEPT: u32 = 3;
    pub(super) const RETIRING: u32 = 4;
    pub(super) const RUN_US: u32 = 5;
    pub(super) const RETRY: u32 = 6;
    pub(super) const ITEMS: u32 = 7;
    pub(super) const RAISED: u32 = 8;
}

fn bytes_length(tag: u32, bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    encoding::key_len(tag) + encoding::encoded_len_varint(bytes.len() as u64) + bytes.len()
}

fn append_bytes(tag: u32, bytes: &[u8], buffer: &mut impl BufMut) {
    if !bytes.is_empty() {
        encoding::encode_key(tag, WireType::LengthDelimited, buffer);
        encoding::encode_varint(bytes.len() as u64, buffer);
        buffer.put_slice(bytes);
    }
}

impl Fields for CallFrame<'_> {
    const KIND: u16 = <Call as Numbered>::KIND;

    fn length(&self) -> usize {
        let attempt = if self.attempt == 0 { 0 } else { encoding::uint32::encoded_len(tag::ATTEMPT, &self.attempt) };
        let retries = if self.retries == 0 { 0 } else { encoding::int32::encoded_len(tag::RETRIES, &self.retries) };
        self.common.len()
            + self.task.length(tag::TASK)
            + bytes_length(tag::ARGUMENTS, self.arguments)
            + encoding::message::encoded_len_repeated(tag::REFERENCES, self.references)
            + attempt
            + retries
            + self.stream.as_ref().map_or(0, |terms| encoding::message::encoded_len(tag::STREAM, terms))
            + encoding::message::encoded_len(tag::ORIGIN, &self.origin)
    }

    fn write(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(self.common);
        self.task.encode(tag::TASK, buffer);
        append_bytes(tag::ARGUMENTS, self.arguments, buffer);
        encoding::message::encode_repeated(tag::REFERENCES, self.references, buffer);
        if self.attempt != 0 {
            encoding::uint32::encode(tag::ATTEMPT, &self.attempt, buffer);
        }
        if self.retries != 0 {
            encoding::int32::encode(tag::RETRIES, &self.retries, buffer);
        }
        if let Some(terms) = &self.stream {
            encoding::message::encode(tag::STREAM, terms, buffer);
        }
        encoding::message::encode(tag::ORIGIN, &self.origin, buffer);
    }
}

/// A [`Reply`] on its way out, of parts that lie elsewhere.
#[derive(Debug, Default)]
pub struct ReplyFrame<'reply> {
    /// Its task.
    pub task: TaskId,
    /// Its results, in order.
    pub results: &'reply [Value],
    /// References from the arguments that the worker still has.
    pub kept: &'reply [ObjectId],
    /// Whether the worker exits now.
    pub retiring: bool,
    /// How long the call ran, in microseconds.
    pub run_us: u32,
    /// Whether the call raised something that the owner asked to retry.
    pub retry: bool,
    /// For a stream: how many items it had.
    pub items: u32,
    /// For a stream: what ended it early.
    pub raised: Option<&'reply Value>,
}

impl ReplyFrame<'_> {
    /// Numbers that are 0 where nothing is to be said, by their tags.
    fn numbers(&self) -> [(u32, u32); 4] {
        let (retiring, retry) = (u32::from(self.retiring), u32::from(self.retry));
        [(tag::RETIRING, retiring), (tag::RUN_US, self.run_us), (tag::RETRY, retry), (tag::ITEMS, self.items)]
    }
}

impl Fields for ReplyFrame<'_> {
    const KIND: u16 = <Reply as Numbered>::KIND;

    fn length(&self) -> usize {
        let said = self.numbers().into_iter().filter(|(_, number)| *number != 0);
        self.task.length(tag::TASK)
            + encoding::message::encoded_len_repeated(tag::RESULTS, self.results)
            + field::identifiers_length(tag::KEPT, self.kept)
            + said.map(|(tag, number)| encoding::uint32::encoded_len(tag, &number)).sum::<usize>()
            + self.raised.map_or(0, |value| encoding::message::encoded_len(tag::RAISED, value))
    }

    fn write(&self, buffer: &mut impl BufMut) {
        self.task.encode(tag::TASK, buffer);
        encoding::message::encode_repeated(tag::RESULTS, self.results, buffer);
        field::encode_identifiers(tag::KEPT, self.kept, buffer);
        for (tag, number) in self.numbers().into_iter().filter(|(_, number)| *number != 0) {
            encoding::uint32::encode(tag, &number, buffer);
        }
        if let Some(value) = self.raised {
            encoding::message::encode(tag::RAISED, value, buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Content, Reference};
    use oxiray_ids::WorkerId;

    fn whole() -> Call {
        let reference = Reference { object: ObjectId::new([1; 28]), owner: Some(WorkerId::new([2; 28])) };
        let argument = ArgumentReference { position: 3, reference: Some(reference), ..ArgumentReference::default() };
        Call {
            task: TaskId::new([7; 24]),
            function: Bytes::from_static(b"hash"),
            name: "name".into(),
            arguments: Bytes::from(vec![1; 300]),
            references: vec![argument.clone(), argument],
            results: 2,
            max_calls: 3,
            retry_exceptions: Bytes::from_static(b"errors"),
            attempt: 4,
            group: "group".into(),
            retries: -1,
            label: "label".into(),
            stream: Some(StreamTerms { ahead: 1, per_yield: 2, arrived: 300, read: 4 }),
            origin: Some(CallOrigin {
                parent: Some(TaskId::new([8; 24])),
                called_us: 1 << 50,
                ready_after_us: Some(0),
                sent_after_us: Some(300),
            }),
        }
    }

    fn read_back(call: &Call) -> Call {
        let own = Call { task: TaskId::NIL, arguments: Bytes::new(), attempt: 0, retries: 0, ..call.clone() };
        let common = CallFrame::common(&Call { references: Vec::new(), stream: None, origin: None, ..own });
        let frame = CallFrame {
            common: &common,
            task: call.task,
            arguments: &call.arguments,
            references: &call.references,
            attempt: call.attempt,
            retries: call.retries,
            stream: call.stream.clone(),
            origin: call.origin.unwrap_or_default(),
        };
        let mut body = BytesMut::new();
        frame.append_body(&mut body);
        assert_eq!(body.len(), frame.body_bytes());
        match Message::decode(frame.kind(), body.freeze()) {
            Ok(Some(Message::Call(read))) => *read,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_of_parts_is_read_as_the_whole() {
        let (whole, empty) =
            (whole(), Call { task: TaskId::new([7; 24]), origin: Some(CallOrigin::default()), ..Call::default() });
        assert_eq!(read_back(&whole), whole);
        assert_eq!(read_back(&empty), empty);
    }

    #[test]
    fn a_reply_of_parts_is_read_as_the_whole() {
        let value =
            |byte| Value { content: Some(Content::Inline(Bytes::from(vec![byte; 200]))), contained: Vec::new() };
        let whole = Reply {
            task: TaskId::new([7; 24]),
            results: vec![value(1), value(2)],
            kept: vec![ObjectId::new([8; 28]), ObjectId::new([9; 28])],
            retiring: true,
            run_us: 300,
            retry: true,
            items: 5,
            raised: Some(value(3)),
        };
        for reply in [whole, Reply { task: TaskId::new([7; 24]), results: vec![value(1)], ..Reply::default() }] {
            let frame = ReplyFrame {
                task: reply.task,
                results: &reply.results,
                kept: &reply.kept,
                retiring: reply.retiring,
                run_us: reply.run_us,
                retry: reply.retry,
                items: reply.items,
                raised: reply.raised.as_ref(),
            };
            let mut body = BytesMut::new();
            frame.append_body(&mut body);
            assert_eq!((body.len(), frame.kind()), (frame.body_bytes(), Message::from(reply.clone()).kind()));
            assert_eq!(Message::decode(frame.kind(), body.freeze()), Ok(Some(reply.into())));
        }
    }
}
