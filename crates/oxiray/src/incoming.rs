//! A call on its way in: arguments as Rust values, and what it came to.

use crate::answer::{Answer, Form, Sink};
use crate::error::{Error, Result};
use crate::{objects, process};
use bytes::Bytes;
use oxiray_ids::{ObjectId, TaskId};
use oxiray_runtime::{EVERYTHING, Runtime, ScannedValue};
use oxiray_values::{Common, Decoded, Encoded, Encoding, ValueError};
use oxiray_wire::message::{ArgumentReference, Content};
use serde::de::DeserializeOwned;

/// Where values come from that are not references.
enum Payload {
    Nothing,
    Native(Decoded),
    Common(std::vec::IntoIter<Common>),
}

/// A result as it is kept: a value, and the references inside of it, each with one use counted.
pub(crate) type KeptResult = (Encoded, Vec<ObjectId>);

/// What a call made.
#[doc(hidden)]
pub enum Made {
    One(KeptResult),
    /// As many as were asked for, where that is not one.
    Several(Vec<KeptResult>),
}

impl Made {
    /// Gives up what the values refer to, since nobody gets them.
    pub(crate) fn release(self, runtime: &Runtime) {
        let release = |(_, contained): KeptResult| runtime.release_all(&contained);
        match self {
            Self::One(kept) => release(kept),
            Self::Several(several) => several.into_iter().for_each(release),
        }
    }
}

/// What a call came to.
#[doc(hidden)]
pub type Outcome = Result<Made>;

/// One call's arguments.
#[doc(hidden)]
pub struct Incoming<'call> {
    runtime: &'call Runtime,
    wanted: Wanted<'call>,
    payload: Payload,
    references: Vec<ArgumentReference>,
    /// Whom the arguments are for, as [`Runtime::pin_argument`] takes it.
    call: Option<TaskId>,
    position: u32,
    is_common: bool,
}

fn too_many(expected: &str) -> Error {
    Error::Invalid(format!("more arguments came than the {expected} takes, or fewer: see how it is declared"))
}

/// How a call is to be answered.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'call> {
    /// With so many results.
    Results(u32),
    /// With items, one by one.
    Items(&'call Sink<'call>),
}

impl<'call> Incoming<'call> {
    pub(crate) fn new(
        runtime: &'call Runtime,
        arguments: &Bytes,
        references: Vec<ArgumentReference>,
        call: Option<TaskId>,
        wanted: Wanted<'call>,
    ) -> Result<Self> {
        let everything = references.iter().find(|reference| reference.position == EVERYTHING);
        let blob = match everything {
            Some(reference) => fetch(runtime, reference, call)?,
            None => arguments.clone(),
        };
        if let Some(keyword) = references.iter().find(|reference| !reference.keyword.is_empty()) {
            let text = format!("`{}` was passed by its name, and Rust takes arguments by their place", keyword.keyword);
            return Err(Error::Invalid(text));
        }
        let payload = if blob.is_empty() {
            Payload::Nothing
        } else {
            let mut decoded = Decoded::new(&blob)?;
            match decoded.encoding {
                Encoding::Native => Payload::Native(decoded),
                Encoding::Common => match decoded.take::<Common>()? {
                    Common::List(list) => Payload::Common(list.into_iter()),
                    other => return Err(Error::Invalid(format!("{} came in place of arguments", other.kind()))),
                },
            }
        };
        let is_common = matches!(payload, Payload::Common(_));
        Ok(Self { runtime, wanted, payload, references, call, position: 0, is_common })
    }

    /// The next argument.
    pub fn argument<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        let position = self.position;
        self.position += 1;
        let unfit = |error: ValueError| Error::Invalid(format!("argument `{name}`: {error}"));
        if let Some(at) = self.references.iter().position(|reference| reference.position == position) {
            let reference = self.references.swap_remove(at);
            if let Payload::Common(list) = &mut self.payload {
                list.next();
            }
            let blob = fetch(self.runtime, &reference, self.call)?;
            return Decoded::new(&blob).and_then(Decoded::value).map_err(unfit);
        }
        match &mut self.payload {
            Payload::Nothing => Err(too_many("function")),
            Payload::Native(decoded) => decoded.take().map_err(unfit),
            Payload::Common(list) => match list.next() {
                Some(value) => value.read().map_err(unfit),
                None => Err(Error::Invalid(format!("argument `{name}` is missing: {position} came"))),
            },
        }
    }

    /// All arguments were taken; how the call is answered.
    pub fn taken(mut self) -> Result<Answer<'call>> {
        let left = match &mut self.payload {
            Payload::Common(list) => list.len(),
            Payload::Nothing | Payload::Native(_) => 0,
        };
        if left > 0 {
            return Err(Error::Invalid(format!(
                "{} arguments came, and the function takes {}: see how it is declared",
                self.position as usize + left,
                self.position
            )));
        }
        Ok(Answer { form: Form { is_common: self.is_common, runtime: self.runtime }, wanted: self.wanted })
    }
}

fn fetch(runtime: &Runtime, argument: &ArgumentReference, call: Option<TaskId>) -> Result<Bytes> {
    let reference = argument
        .reference
        .as_ref()
        .ok_or_else(|| Error::Invalid("an argument arrived without saying which it is".into()))?;
    let (id, owner) = (reference.object, reference.owner.unwrap_or_default());
    if let Some(value) = argument.value.as_ref().filter(|value| !matches!(value.content, Some(Content::Stored(_)))) {
        return objects::blob(runtime, id, ScannedValue::from(value), None, None);
    }
    // The object is to be known here in case that its stored bytes are lost.
    runtime.borrow(id, owner);
    let seen = match &argument.value {
        Some(value) => Ok(ScannedValue::from(value)),
        // Too much to travel with the call: the daemon has it.
        None => process::patiently(|| runtime.get_one(id, None)),
    };
    let pin = || runtime.pin_argument(id, argument.losses, call);
    let blob = seen.and_then(|seen| objects::blob_with(runtime, id, seen, None, pin));
    runtime.release(id);
    blob
}
