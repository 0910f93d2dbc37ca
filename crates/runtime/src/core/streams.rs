//! Streams of results as their owner counts them: what arrived, what was read, who still reads.
//!
//! Pure: the values themselves are objects (`objects.rs`), and telling others is up to `reading.rs`.
//!
//! - STREAMS-1: items arrive in order and each counts once, however often the call is run again.
//! - STREAMS-2: no more is read than has arrived. What lies between has one use each, the stream's, which goes to whoever
//!   reads it, or is given up when the reader goes.
//! - STREAMS-3: after the end, nothing arrives.
//! - STREAMS-4: a stream is forgotten when it has ended and its reader is gone, in whatever order.
//! - STREAMS-5: an item of which somebody has a reference before it is there comes, or is known not to come when the stream
//!   has ended.

use crate::core::io::Token;
use oxiray_ids::{ObjectId, TaskId};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// The object that says how the call ended is its first; items follow.
pub(crate) const FIRST_ITEM: u32 = 2;
/// Items of one call at most: the rest of the numbers belongs to what tasks put.
const ITEMS_LIMIT: u32 = ObjectId::FIRST_PUT - FIRST_ITEM;

/// The object of a call's item.
pub(crate) fn item(task: TaskId, index: u32) -> ObjectId {
    task.object(FIRST_ITEM + index)
}

#[derive(Debug, Default)]
struct Stream {
    arrived: u32,
    read: u32,
    /// Of the items below this number somebody may have a reference (STREAMS-5).
    awaited: u32,
    ended: bool,
    /// Somebody asked for an item.
    touched: bool,
    reader_gone: bool,
    /// The reader wants to be told when there is something for it.
    announced: bool,
    /// Where items come from, for what has to be said back.
    from: Option<Token>,
    /// The worker waits for items to be read.
    is_limited: bool,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The item of this number, now read. Where the worker has to hear of it: how many were, and over which link.
    Item(u32, Option<(Token, u32)>),
    NotYet,
    End,
}

/// Where an item is that a reader has not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// It is there.
    Here,
    /// It may come.
    Coming,
    /// The stream has ended before it.
    Never,
}

/// What is left behind by a reader that goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Items that nobody will read.
    pub(crate) unread: Range<u32>,
    /// The call runs, and was being read.
    pub(crate) in_the_middle: bool,
}

/// Every stream of this process's calls.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: FxHashMap<TaskId, Stream>,
}

impl Streams {
    pub(crate) fn open(&mut self, task: TaskId, is_limited: bool) {
        self.open.insert(task, Stream { is_limited, ..Stream::default() });
    }

    /// An item came, or was made here where `from` is `None`. `true` where it is to be kept for the reader; the
    /// number it has is the one given (STREAMS-1).
    pub(crate) fn accept(&mut self, task: TaskId, index: u32, from: Option<Token>) -> bool {
        let Some(stream) = self.open.get_mut(&task) else { return false };
        if stream.ended || index != stream.arrived || index >= ITEMS_LIMIT {
            return false;
        }
        stream.arrived += 1;
        stream.from = from.or(stream.from);
        !stream.reader_gone
    }

    /// The call is with the worker at that stream from here on, which is to hear of what is read.
    pub(crate) fn sent(&mut self, task: TaskId, to: Token) {
        if let Some(stream) = self.open.get_mut(&task) {
            stream.from = Some(to);
        }
    }

    /// How many items arrived.
    pub(crate) fn arrived(&self, task: TaskId) -> Option<u32> {
        self.open.get(&task).map(|stream| stream.arrived)
    }

    /// How many items were read; `None` where nobody reads any more.
    pub(crate) fn read(&self, task: TaskId) -> Option<u32> {
        self.open.get(&task).filter(|stream| !stream.reader_gone).map(|stream| stream.read)
    }

    /// The call is over (STREAMS-3). Returns the items that somebody waits for and that do not come (STREAMS-5).
    pub(crate) fn end(&mut self, task: TaskId) -> Range<u32> {
        let Some(stream) = self.open.get_mut(&task) else { return 0..0 };
        stream.ended = true;
        let never = stream.arrived..std::mem::take(&mut stream.awaited);
        if stream.reader_gone {
            self.open.remove(&task);
        }
        never
    }

    /// The items that are read next, so many of them: somebody has a reference to each from here on.
    pub(crate) fn look_ahead(&mut self, task: TaskId, count: u32) -> Vec<(u32, Ahead)> {
        let Some(stream) = self.open.get_mut(&task) else { return Vec::new() };
        stream.touched = true;
        let end = stream.read.saturating_add(count).min(ITEMS_LIMIT);
        if !stream.ended {
            stream.awaited = stream.awaited.max(end);
        }
        let place = |index| match index < stream.arrived {
            true => Ahead::Here,
            false if stream.ended => Ahead::Never,
            false => Ahead::Coming,
        };
        (stream.read..end).map(|index| (index, place(index))).collect()
    }

    /// Whether the next items, so many of them, are there or do not come.
    pub(crate) fn are_settled(&self, task: TaskId, count: u32) -> bool {
        self.open.get(&task).is_none_or(|stream| stream.ended || stream.read.saturating_add(count) <= stream.arrived)
    }

    /// Every stream that has not ended, with the number its next item would have.
    pub(crate) fn unfinished(&self) -> Vec<(TaskId, u32)> {
        self.open.iter().filter(|(_, stream)| !stream.ended).map(|(task, stream)| (*task, stream.arrived)).collect()
    }

    /// Takes the next item (STREAMS-2).
    pub(crate) fn next(&mut self, task: TaskId) -> Found {
        let Some(stream) = self.open.get_mut(&task) else { return Found::End };
        stream.touched = true;
        if stream.read == stream.arrived {
            return if stream.ended { Found::End } else { Found::NotYet };
        }
        let index = stream.read;
        stream.read += 1;
        let tell = stream.is_limited && !stream.ended;
        Found::Item(index, stream.from.filter(|_| tell).map(|from| (from, stream.read)))
    }

    /// Whether [`Streams::next`] would answer at once.
    pub(crate) fn is_ready(&self, task: TaskId) -> bool {
        self.open.get(&task).is_none_or(|stream| stream.ended || stream.read < stream.arrived)
    }

    /// The reader waits, in whatever way.
    pub(crate) fn touch(&mut self, task: TaskId) {
        if let Some(stream) = self.open.get_mut(&task) {
            stream.touched = true;
        }
    }

    /// Whether the call has ended and everything was read.
    pub(crate) fn is_over(&self, task: TaskId) -> bool {
        self.open.get(&task).is_none_or(|stream| stream.ended && stream.read == stream.arrived)
    }

    /// The number of the item that is read next.
    pub(crate) fn next_index(&self, task: TaskId) -> u32 {
        self.open.get(&task).map_or(0, |stream| stream.read)
    }

    /// Asks for one announcement of whatever comes next; `false` where it is there.
    pub(crate) fn announce(&mut self, task: TaskId) -> bool {
        let waits = !self.is_ready(task);
        if let Some(stream) = self.open.get_mut(&task) {
            stream.touched = true;
            stream.announced = waits;
        }
        waits
    }

    /// Whether somebody asked to hear of what just came, who then is not told again.
    pub(crate) fn take_announcement(&mut self, task: TaskId) -> Option<u32> {
        let stream = self.open.get_mut(&task)?;
        std::mem::take(&mut stream.announced).then_some(stream.read)
    }

    /// The reader goes. What it left is the caller's to give up.
    pub(crate) fn leave(&mut self, task: TaskId) -> Option<Left> {
        let stream = self.open.get_mut(&task)?;
        let unread = stream.read..stream.arrived;
        stream.reader_gone = true;
        let in_the_middle = !stream.ended && stream.touched;
        if stream.ended {
            self.open.remove(&task);
        }
        Some(Left { unread, in_the_middle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_ids::{ActorId, JobId, Unique};

    fn opened(is_limited: bool) -> (Streams, TaskId) {
        let task = TaskId::generate(ActorId::nil_of(JobId::from_number(1)), &mut Unique::new());
        let mut streams = Streams::default();
        streams.open(task, is_limited);
        (streams, task)
    }

    #[test]
    fn items_are_read_in_order_until_the_end() {
        let (mut streams, task) = opened(false);
        assert_eq!(streams.next(task), Found::NotYet);
        assert!(streams.accept(task, 0, Some(7)) && streams.accept(task, 1, Some(7)));
        assert_eq!(streams.next(task), Found::Item(0, None));
        streams.end(task);
        assert_eq!((streams.next(task), streams.next(task)), (Found::Item(1, None), Found::End));
        assert!(streams.is_over(task) && streams.is_ready(task));
    }

    #[test]
    fn a_replayed_item_and_one_out_of_order_count_for_nothing() {
        let (mut streams, task) = opened(false);
        assert!(streams.accept(task, 0, Some(7)));
        assert!(!streams.accept(task, 0, Some(8)) && !streams.accept(task, 2, Some(8)));
        assert_eq!((streams.arrived(task), streams.read(task)), (Some(1), Some(0)));
    }

    #[test]
    fn nothing_arrives_after_the_end() {
        let (mut streams, task) = opened(false);
        streams.end(task);
        assert!(!streams.accept(task, 0, Some(7)));
        assert_eq!(streams.next(task), Found::End);
    }

    #[test]
    fn a_worker_that_waits_hears_of_each_item_read() {
        let (mut streams, task) = opened(true);
        streams.accept(task, 0, Some(7));
        streams.accept(task, 1, Some(7));
        assert_eq!(streams.next(task), Found::Item(0, Some((7, 1))));
        streams.end(task);
        assert_eq!(streams.next(task), Found::Item(1, None), "nobody is left to hear of it");
    }

    #[test]
    fn the_worker_of_a_later_attempt_hears_of_what_the_first_one_yielded() {
        let (mut streams, task) = opened(true);
        streams.accept(task, 0, Some(7));
        streams.sent(task, 8);
        assert_eq!(streams.next(task), Found::Item(0, Some((8, 1))));
    }

    #[test]
    fn what_was_not_read_is_left_and_what_comes_after_is_not_kept() {
        let (mut streams, task) = opened(false);
        for index in 0..3 {
            streams.accept(task, index, Some(7));
        }
        streams.next(task);
        assert_eq!(streams.leave(task), Some(Left { unread: 1..3, in_the_middle: true }));
        assert!(!streams.accept(task, 3, Some(7)));
        assert_eq!((streams.arrived(task), streams.read(task)), (Some(4), None));
        streams.end(task);
        assert!(streams.open.is_empty(), "STREAMS-4");
    }

    #[test]
    fn a_stream_that_nobody_looked_at_is_not_in_the_middle() {
        let (mut streams, task) = opened(false);
        streams.accept(task, 0, Some(7));
        assert_eq!(streams.leave(task), Some(Left { unread: 0..1, in_the_middle: false }));
        streams.end(task);
        assert!(streams.open.is_empty(), "STREAMS-4");
    }

    #[test]
    fn an_item_that_is_waited_for_comes_or_is_known_not_to_come() {
        let (mut streams, task) = opened(false);
        streams.accept(task, 0, None);
        assert_eq!(streams.look_ahead(task, 3), [(0, Ahead::Here), (1, Ahead::Coming), (2, Ahead::Coming)]);
        assert!(streams.are_settled(task, 1) && !streams.are_settled(task, 2));
        streams.accept(task, 1, None);
        assert_eq!(streams.next(task), Found::Item(0, None));
        assert_eq!(streams.end(task), 2..3);
        assert_eq!(streams.look_ahead(task, 2), [(1, Ahead::Here), (2, Ahead::Never)]);
        assert!(streams.are_settled(task, 9));
    }

    #[test]
    fn what_is_waited_for_is_told_of_though_the_reader_is_gone() {
        let (mut streams, task) = opened(false);
        streams.look_ahead(task, 1);
        streams.leave(task);
        assert_eq!(streams.end(task), 0..1);
        assert!(streams.open.is_empty() && streams.look_ahead(task, 1).is_empty(), "STREAMS-4");
    }

    #[test]
    fn an_announcement_is_made_once() {
        let (mut streams, task) = opened(false);
        assert!(streams.announce(task));
        streams.accept(task, 0, None);
        assert_eq!((streams.take_announcement(task), streams.take_announcement(task)), (Some(0), None));
        assert!(!streams.announce(task), "it is there");
    }
}
