//! Typed identifiers of nodes, workers, jobs, actors, tasks, objects and placement groups, and how they nest; and typed numbers
//! of what one side names to another.
//!
//! Sizes and nesting follow Ray's, since programs print, parse and slice them:
//!
//! ```text
//! JobId      4   number, LE
//! ActorId   16   unique(12) · job(4)
//! TaskId    24   unique(8)  · actor(16)     a task outside actors carries the nil actor of its job
//! ObjectId  28   task(24)   · index(4, LE)  index 0 is never a result: results count from 1
//! NodeId    28   random
//! WorkerId  28   random
//! PlacementGroupId 18   unique(14) · job(4)
//! ```
//!
//! As text, and so in JSON, an identifier is its hexadecimal digits.
//!
//! Uniqueness comes from the operating system's random source ([`Unique`]); nothing here reads a clock.

mod numbers;
mod seeded;

pub use numbers::{BundleNumber, LeaseNumber, LeaseRequestNumber, WorkerNumber};

use std::fmt;

/// The identifier's text form was not what its type wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseIdError {
    /// The type asked for, such as `ActorId`.
    pub kind: &'static str,
    /// How many bytes it has.
    pub bytes: usize,
    /// What was given.
    pub given: String,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no {}: {} hexadecimal digits are wanted, {} characters were given",
            self.given,
            self.kind,
            self.bytes * 2,
            self.given.chars().count()
        )
    }
}

impl std::error::Error for ParseIdError {}

/// The 8 bytes of an identifier from `at` on, and 0 where there are fewer. Identifiers are made of such words and looked at
/// by the same: the processor waits where one look spans what was written in two.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// The hexadecimal digits of `bytes`, written into `text`, which has two places for each.
fn digits<'a>(bytes: &[u8], text: &'a mut [u8]) -> &'a str {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    str::from_utf8(text).expect("digits are ASCII")
}

/// What is left of an identifier behind its last whole word, as a number.
#[inline]
fn tail(bytes: &[u8]) -> u64 {
    match bytes.as_chunks::<8>().1 {
        [first, second, third, fourth] => u32::from_le_bytes([*first, *second, *third, *fourth]).into(),
        rest => rest.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    }
}

/// An identifier in 8 bytes, for tables: looked up many times a call, so that hashing all of it one byte after the other
/// would be felt.
#[inline]
fn folded(bytes: &[u8]) -> u64 {
    let words = word(bytes, 0) ^ word(bytes, 8).rotate_left(23) ^ word(bytes, 16).rotate_left(41);
    words ^ tail(bytes).rotate_left(9)
}

#[inline]
fn are_same(one: &[u8], other: &[u8]) -> bool {
    let differs = |at| word(one, at) ^ word(other, at);
    differs(0) | differs(8) | differs(16) | (tail(one) ^ tail(other)) == 0
}

/// Identifiers drawn in a row.
const ROW: u32 = 6;

/// Where a table that is ordered by this looks for an identifier: those drawn in a row lie in a row, which the processor
/// then has at hand. Where a row of 64 lies is mixed well, so that those left over of many rows do not crowd one place.
#[inline]
fn in_row(word: u64) -> u64 {
    let (row, within) = (word >> ROW, word & ((1 << ROW) - 1));
    let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Tables tell entries beside each other apart by the highest bits.
    ((mixed ^ mixed >> 32) << ROW ^ within) ^ within << 57
}

/// What entries of a table are found by.
pub trait Identifier: Copy + Eq {
    /// Its hash, for tables that take hashes as they are: identifiers that one process drew one after the other have
    /// neighbouring ones, in the lowest bits.
    fn row_hash(&self) -> u64;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq, PartialOrd, Ord)]
        #[repr(align(4))]
        pub struct $name([u8; $bytes]);

        impl PartialEq for $name {
            #[inline]
            fn eq(&self, other: &Self) -> bool {
                const { assert!($bytes <= 28, "what is compared ends there") };
                are_same(&self.0, &other.0)
            }
        }

        impl std::hash::Hash for $name {
            #[inline]
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u64(folded(&self.0));
            }
        }

        impl Identifier for $name {
            #[inline]
            fn row_hash(&self) -> u64 {
                in_row(folded(&self.0))
            }
        }

        impl $name {
            /// How many bytes the identifier has.
            pub const BYTES: usize = $bytes;

            /// The identifier that names nothing: all bits set, as in Ray.
            pub const NIL: Self = Self([0xff; $bytes]);

            /// The identifier with exactly these bytes.
            pub const fn new(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// The identifier whose bytes stand in `slice`; `None` where the length differs.
            #[inline]
            pub fn from_slice(slice: &[u8]) -> Option<Self> {
                slice.try_into().ok().map(Self)
            }

            /// Reads lower- or upper-case hexadecimal digits.
            pub fn from_hex(text: &str) -> Result<Self, ParseIdError> {
                let fail = || ParseIdError { kind: stringify!($name), bytes: $bytes, given: text.to_owned() };
                let digits = text.as_bytes();
                if digits.len() != $bytes * 2 {
                    return Err(fail());
                }
                let mut bytes = [0; $bytes];
                for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                    let high = (pair[0] as char).to_digit(16).ok_or_else(fail)?;
                    let low = (pair[1] as char).to_digit(16).ok_or_else(fail)?;
                    *byte = (high * 16 + low) as u8;
                }
                Ok(Self(bytes))
            }

            /// The bytes.
            #[inline]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// Lower-case hexadecimal digits.
            pub fn hex(&self) -> String {
                self.to_string()
            }

            /// Whether this names nothing.
            #[inline]
            pub fn is_nil(&self) -> bool {
                *self == Self::NIL
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NIL
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(digits(&self.0, &mut [0; 2 * Self::BYTES]))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::from_hex(&text).map_err(serde::de::Error::custom)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

id!(
    /// A driver's connection to a cluster.
    JobId,
    4
);
id!(
    /// An actor, alive or dead.
    ActorId,
    16
);
id!(
    /// One call of a function or method, retries included.
    TaskId,
    24
);
id!(
    /// A value: the result of a task, or one that was put.
    ObjectId,
    28
);
id!(
    /// A machine's daemon.
    NodeId,
    28
);
id!(
    /// A process that holds a runtime: a driver or a worker.
    WorkerId,
    28
);

id!(
    /// Resources that were reserved together.
    PlacementGroupId,
    18
);

impl PlacementGroupId {
    /// A new group of `job`.
    pub fn generate(job: JobId, unique: &mut Unique) -> Self {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&unique.next().to_be_bytes());
        bytes[8..14].copy_from_slice(&unique.next().to_be_bytes()[..6]);
        bytes[14..].copy_from_slice(job.as_bytes());
        Self(bytes)
    }
}

impl JobId {
    /// The job with this number; jobs of a cluster count from 1.
    pub const fn from_number(number: u32) -> Self {
        Self(number.to_le_bytes())
    }

    /// The number of the job.
    #[inline]
    pub const fn number(&self) -> u32 {
        u32::from_le_bytes(self.0)
    }
}

impl ActorId {
    /// A new actor of `job`.
    pub fn generate(job: JobId, unique: &mut Unique) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&unique.next().to_be_bytes());
        bytes[8..12].copy_from_slice(&unique.next().to_be_bytes()[..4]);
        bytes[12..].copy_from_slice(job.as_bytes());
        Self(bytes)
    }

    /// What tasks outside of actors carry in place of an actor.
    #[inline]
    pub fn nil_of(job: JobId) -> Self {
        let mut bytes = [0xff; 16];
        bytes[12..].copy_from_slice(job.as_bytes());
        Self(bytes)
    }

    /// The job the actor belongs to.
    #[inline]
    pub fn job(&self) -> JobId {
        JobId([self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    /// The task that runs its constructor.
    pub fn creation_task(&self) -> TaskId {
        let mut bytes = [0xff; 24];
        bytes[8..].copy_from_slice(&self.0);
        TaskId(bytes)
    }

    /// The object that stands for the actor: whoever holds it can reach the actor. It never has a value.
    pub fn anchor(&self) -> ObjectId {
        self.creation_task().object(1)
    }

    /// Whether this is the stand-in of [`ActorId::nil_of`] (or nil itself).
    #[inline]
    pub fn is_nil_of_job(&self) -> bool {
        self.0[..12] == [0xff; 12]
    }
}

impl TaskId {
    /// A new task; `actor` is [`ActorId::nil_of`] for tasks outside actors.
    pub fn generate(actor: ActorId, unique: &mut Unique) -> Self {
        let mut bytes = [0; 24];
        // What changes most comes first: people tell identifiers apart by their beginnings.
        bytes[..8].copy_from_slice(&unique.next_in_row().to_le_bytes());
        bytes[8..].copy_from_slice(actor.as_bytes());
        Self(bytes)
    }

    /// What stands for the driver of `job` where the task that called is named.
    pub fn of_driver(job: JobId) -> Self {
        let mut bytes = [0xff; 24];
        bytes[20..].copy_from_slice(job.as_bytes());
        Self(bytes)
    }

    /// The actor the task runs in, or the nil actor of its job.
    #[inline]
    pub fn actor(&self) -> ActorId {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[8..]);
        ActorId(bytes)
    }

    /// The job the task belongs to.
    #[inline]
    pub fn job(&self) -> JobId {
        self.actor().job()
    }

    /// The object of the task's `index`-th result, counted from 1, or of its `index`-th put,
    /// counted from [`ObjectId::FIRST_PUT`].
    #[inline]
    pub fn object(&self, index: u32) -> ObjectId {
        let mut bytes = [0; 28];
        bytes[..24].copy_from_slice(&self.0);
        bytes[24..].copy_from_slice(&index.to_le_bytes());
        ObjectId(bytes)
    }
}

impl ObjectId {
    /// Objects that a task puts are numbered from here on, its results below.
    pub const FIRST_PUT: u32 = 1 << 31;

    /// The task that made the object.
    #[inline]
    pub fn task(&self) -> TaskId {
        let mut bytes = [0; 24];
        bytes.copy_from_slice(&self.0[..24]);
        TaskId(bytes)
    }

    /// The actor that this object stands for ([`ActorId::anchor`]), where it stands for one.
    pub fn anchored_actor(&self) -> Option<ActorId> {
        let actor = self.task().actor();
        (self.0[..8] == [0xff; 8] && *self == actor.anchor()).then_some(actor)
    }

    /// The object's number among those of its task.
    #[inline]
    pub fn index(&self) -> u32 {
        u32::from_le_bytes([self.0[24], self.0[25], self.0[26], self.0[27]])
    }
}

impl NodeId {
    /// A new node.
    pub fn generate() -> Self {
        Self(random())
    }
}

impl WorkerId {
    /// A new driver or worker.
    pub fn generate() -> Self {
        Self(random())
    }
}

/// Bytes from the operating system's random source.
///
/// # Panics
/// Where the system has none: nothing that must be unforgeable or unique could be made then.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a random source");
    bytes
}

/// Where the identifiers of processes come from: the operating system, or a seed where a run is to be the same again.
#[derive(Debug, Default)]
pub struct Chance {
    seeded: Option<Unique>,
}

impl Chance {
    /// The same bytes in the same order for the same seed: for simulations, never for what must be unforgeable.
    pub fn seeded(seed: u64) -> Self {
        Self { seeded: Some(Unique { state: seed, row: seed }) }
    }

    /// The next bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let Some(unique) = &mut self.seeded else { return random() };
        let mut bytes = [0; N];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&unique.next().to_be_bytes()[..part.len()]);
        }
        bytes
    }
}

/// Numbers that no other process draws: a random start, stepped and mixed (splitmix64), so that a
/// call costs nanoseconds. A forked child must make its own.
#[derive(Debug)]
pub struct Unique {
    state: u64,
    row: u64,
}

impl Unique {
    /// Starts somewhere random.
    pub fn new() -> Self {
        Self { state: u64::from_ne_bytes(random()), row: u64::from_ne_bytes(random()) }
    }

    /// The next number of a row that also starts somewhere random, for what is drawn very often and looked up in the order
    /// in which it was drawn.
    pub fn next_in_row(&mut self) -> u64 {
        self.row = self.row.wrapping_add(1);
        self.row
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so an iterator would only add an Option")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Default for Unique {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_nest_as_in_ray() {
        let mut unique = Unique::new();
        let job = JobId::from_number(7);
        let actor = ActorId::generate(job, &mut unique);
        let task = TaskId::generate(actor, &mut unique);
        let object = task.object(3);
        assert_eq!((object.task(), object.index()), (task, 3));
        assert_eq!((task.actor(), actor.job()), (actor, job));
        assert!(ActorId::nil_of(job).is_nil_of_job() && !actor.is_nil_of_job());
        assert_eq!((actor.anchor().anchored_actor(), object.anchored_actor()), (Some(actor), None));
    }

    #[test]
    fn tables_tell_apart_what_is_nested_in_the_same() {
        let mut unique = Unique::new();
        let job = JobId::from_number(7);
        let task = TaskId::generate(ActorId::nil_of(job), &mut unique);
        let puts = (0..1000).map(|index| task.object(ObjectId::FIRST_PUT | index));
        let results = (0..1000).map(|index| task.object(index));
        let actors: Vec<ActorId> = (0..1000).map(|_| ActorId::generate(job, &mut unique)).collect();
        let anchors = actors.iter().map(ActorId::anchor);
        let calls: Vec<TaskId> = actors.iter().map(|actor| TaskId::generate(*actor, &mut unique)).collect();
        let objects = puts.chain(results).chain(anchors).chain(calls.iter().map(|call| call.object(1)));
        let distinct: std::collections::BTreeSet<u64> = objects.map(|id| folded(id.as_bytes())).collect();
        assert_eq!(distinct.len(), 4000);
        let jobs = (0..1000).map(|number| folded(JobId::from_number(number).as_bytes()));
        assert_eq!(jobs.collect::<std::collections::BTreeSet<u64>>().len(), 1000);
    }

    #[test]
    fn what_is_drawn_in_a_row_lies_in_a_row_and_what_is_left_of_many_rows_does_not_crowd() {
        let mut unique = Unique { state: 0, row: 1 << 40 };
        let actor = ActorId::nil_of(JobId::from_number(7));
        let drawn: Vec<ObjectId> = (0..1 << 16).map(|_| TaskId::generate(actor, &mut unique).object(1)).collect();
        let slots = 1 << 11;
        let slot = |id: &ObjectId| id.row_hash() % slots;
        for row in drawn[..1 << 10].chunks(128) {
            let slots: std::collections::BTreeSet<u64> = row.iter().map(|id| slot(id) / 64).collect();
            assert!(slots.len() <= 3, "128 lie in two or three rows");
        }
        let left: Vec<u64> = drawn.iter().step_by(64).map(slot).collect();
        let distinct: std::collections::BTreeSet<u64> = left.iter().copied().collect();
        assert!(left.len() == 1024 && distinct.len() >= 24, "{} places of 32", distinct.len());
    }

    #[test]
    fn a_seed_gives_the_same_again_and_the_system_never_does() {
        let three = |mut chance: Chance| [chance.bytes::<28>(), chance.bytes(), chance.bytes()];
        assert_eq!(three(Chance::seeded(7)), three(Chance::seeded(7)));
        assert_ne!(three(Chance::seeded(7)), three(Chance::seeded(8)));
        assert_ne!(three(Chance::default()), three(Chance::default()));
    }

    #[test]
    fn hex_goes_both_ways_and_names_what_is_wrong() {
        let node = NodeId::generate();
        assert_eq!(NodeId::from_hex(&node.hex()), Ok(node));
        let error = JobId::from_hex("xyz").expect_err("three characters are no job");
        assert_eq!(error.to_string(), "`xyz` is no JobId: 8 hexadecimal digits are wanted, 3 characters were given");
        assert!(JobId::from_hex("0000000g").is_err());
    }
}
