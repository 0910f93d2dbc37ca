//! What other nodes are given of the objects here: which pieces are owed, and where pinned objects lie. Pure.
//!
//! - GIVING-1: of one object a node is owed at most [`OWED_MAX`] pieces while the store is asked for it, and it reads at most
//!   [`ATTEMPTS_MAX`] objects at once on one stream; one that asks for more is ended (DOOR-1).
//! - GIVING-2: a number stands for one attempt at one object, on the stream that it came on.

use oxiray_ids::ObjectId;
use oxiray_machine::Key;
use oxiray_store::SegmentId;
use oxiray_wire::message::Fetch;
use std::collections::BTreeMap;

/// Pieces that are owed to one attempt; a node has [`crate::fetches::PIECES_AHEAD`] under way.
const OWED_MAX: usize = 16;
/// Attempts that a stream has at once; a node has [`crate::fetches::FETCHES_MAX`], and each that ends makes room for another.
const ATTEMPTS_MAX: usize = 64;

const _: () = assert!(OWED_MAX >= crate::fetches::PIECES_AHEAD as usize, "an honest node is not ended");
const _: () = assert!(ATTEMPTS_MAX >= crate::fetches::FETCHES_MAX, "an honest node is not ended");

/// What no honest node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreasonable {
    /// GIVING-1.
    #[error("it asked for more than {OWED_MAX} pieces of object {0} before the first of them came")]
    Pieces(ObjectId),
    /// GIVING-1.
    #[error("it reads more than {ATTEMPTS_MAX} objects at once")]
    Attempts,
    /// GIVING-2.
    #[error("it asked for object {0} under a number that stands for another object")]
    OtherObject(ObjectId),
}

/// A pinned object: where it is, and its bytes.
pub(crate) type Place = (SegmentId, u64);

/// What is to be done for a piece that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The piece is sent from here.
    Send(Place),
    /// The store is asked to pin the object, under this number.
    Pin(u64),
    /// The store was asked; the piece is owed.
    Owed,
    /// The object is not here.
    Missing,
}

#[derive(Debug)]
enum State {
    /// The store is asked; these pieces are owed.
    Asked(Vec<Fetch>),
    Pinned(Place),
}

/// An object that another node reads.
#[derive(Debug)]
struct Given {
    object: ObjectId,
    state: State,
}

/// All that other nodes read here, by the stream and the number of the attempt.
#[derive(Debug, Default)]
pub(crate) struct Giving {
    given: BTreeMap<(Key, u64), Given>,
    /// What the store was asked for on behalf of a stream: the attempt, and the object.
    questions: BTreeMap<u64, (u64, ObjectId)>,
    last_question: u64,
}

impl Giving {
    /// A node asks for a piece.
    pub(crate) fn asked(
        &mut self,
        link: Key,
        object: ObjectId,
        asked: Fetch,
        is_here: bool,
    ) -> Result<Next, Unreasonable> {
        let (number, attempts) = (asked.number, self.attempts(link));
        match self.given.get_mut(&(link, number)) {
            // GIVING-2.
            Some(given) if given.object != object => Err(Unreasonable::OtherObject(object)),
            Some(Given { state: State::Pinned(place), .. }) => Ok(Next::Send(*place)),
            Some(Given { state: State::Asked(owed), .. }) if owed.len() < OWED_MAX => {
                owed.push(asked);
                Ok(Next::Owed)
            }
            Some(_) => Err(Unreasonable::Pieces(object)),
            None if !is_here => Ok(Next::Missing),
            None if attempts >= ATTEMPTS_MAX => Err(Unreasonable::Attempts),
            None => {
                self.given.insert((link, number), Given { object, state: State::Asked(vec![asked]) });
                self.last_question += 1;
                self.questions.insert(self.last_question, (number, object));
                Ok(Next::Pin(self.last_question))
            }
        }
    }

    fn attempts(&self, link: Key) -> usize {
        self.given.range((link, 0)..=(link, u64::MAX)).count()
    }

    /// The store pinned what it was asked for under this number: the object, and the pieces that are owed of it; none where
    /// the attempt was given up meanwhile.
    pub(crate) fn pinned(&mut self, link: Key, question: u64, place: Place) -> Option<(ObjectId, Option<Vec<Fetch>>)> {
        let (number, object) = self.questions.remove(&question)?;
        let owed = self.given.get_mut(&(link, number)).and_then(|given| match &mut given.state {
            State::Asked(owed) => {
                let owed = std::mem::take(owed);
                given.state = State::Pinned(place);
                Some(owed)
            }
            State::Pinned(_) => None,
        });
        Some((object, owed))
    }

    /// The store could not: the attempt and the object, where the node still waits for it.
    pub(crate) fn not_pinned(&mut self, link: Key, question: u64) -> Option<(u64, ObjectId)> {
        let (number, object) = self.questions.remove(&question)?;
        self.given.remove(&(link, number)).map(|_| (number, object))
    }

    /// An attempt is over. Returns the object that is not to be pinned for it any more.
    pub(crate) fn end(&mut self, link: Key, number: u64) -> Option<ObjectId> {
        let given = self.given.remove(&(link, number))?;
        matches!(given.state, State::Pinned(_)).then_some(given.object)
    }

    /// The stream to a node is over.
    pub(crate) fn link_over(&mut self, link: Key) {
        self.given.retain(|(key, _), _| *key != link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_store::FileId;

    const LINK: Key = 7;
    const PLACE: Place = (SegmentId { file: FileId(1), offset: 0 }, 100);

    fn object(number: u8) -> ObjectId {
        ObjectId::from_slice(&[number; 28]).expect("28 bytes")
    }

    fn fetch(number: u64, offset: u64) -> Fetch {
        Fetch { number, offset, length: 10, ..Fetch::default() }
    }

    #[test]
    fn pieces_are_owed_until_the_object_is_pinned_and_only_so_many_of_them() {
        let mut giving = Giving::default();
        assert_eq!(giving.asked(LINK, object(1), fetch(1, 0), false), Ok(Next::Missing));
        assert_eq!(giving.asked(LINK, object(1), fetch(1, 0), true), Ok(Next::Pin(1)));
        for piece in 1..OWED_MAX as u64 {
            assert_eq!(giving.asked(LINK, object(1), fetch(1, piece), true), Ok(Next::Owed));
        }
        let error = giving.asked(LINK, object(1), fetch(1, 99), true).expect_err("GIVING-1");
        assert_eq!(error, Unreasonable::Pieces(object(1)));
        assert!(error.to_string().contains("more than 16 pieces"), "{error}");
        let (pinned, owed) = giving.pinned(LINK, 1, PLACE).expect("it was asked for");
        let offsets: Vec<u64> = owed.expect("it is waited for").iter().map(|piece| piece.offset).collect();
        assert_eq!((pinned, offsets), (object(1), (0..OWED_MAX as u64).collect()));
        assert_eq!(giving.asked(LINK, object(1), fetch(1, 50), true), Ok(Next::Send(PLACE)));
        assert_eq!((giving.end(LINK, 1), giving.end(LINK, 1)), (Some(object(1)), None));
    }

    #[test]
    fn a_stream_has_only_so_many_attempts_at_once_and_each_that_ends_makes_room() {
        let mut giving = Giving::default();
        for number in 0..ATTEMPTS_MAX as u64 {
            assert_eq!(giving.asked(LINK, object(1), fetch(number, 0), true), Ok(Next::Pin(number + 1)));
        }
        let one_more = fetch(1000, 0);
        assert_eq!(giving.asked(LINK, object(1), one_more.clone(), true), Err(Unreasonable::Attempts));
        assert!(giving.asked(LINK + 1, object(1), one_more.clone(), true).is_ok(), "another stream's are its own");
        assert_eq!(giving.not_pinned(LINK, 5), Some((4, object(1))));
        assert!(giving.asked(LINK, object(1), one_more, true).is_ok());
        assert_eq!(giving.end(LINK, 0), None, "it was not pinned yet");
        assert_eq!(giving.pinned(LINK, 1, PLACE), Some((object(1), None)), "what is pinned for nobody is let go of");
    }

    #[test]
    fn a_number_stands_for_one_object() {
        let mut giving = Giving::default();
        assert_eq!(giving.asked(LINK, object(1), fetch(1, 0), true), Ok(Next::Pin(1)));
        assert_eq!(giving.asked(LINK, object(2), fetch(1, 0), true), Err(Unreasonable::OtherObject(object(2))));
        giving.pinned(LINK, 1, PLACE);
        assert_eq!(giving.asked(LINK, object(2), fetch(1, 0), true), Err(Unreasonable::OtherObject(object(2))));
        giving.link_over(LINK);
        assert_eq!(giving.asked(LINK, object(2), fetch(1, 0), true), Ok(Next::Pin(2)));
    }
}
