//! A call's arguments on their way out.

use crate::error::{Error, Result};
use crate::objects::keep;
use crate::process;
use crate::reference::{Held, ObjectRef, collecting};
use bytes::Bytes;
use oxiray_ids::ObjectId;
use oxiray_runtime::{Arguments, INLINE_BYTES, Place, Runtime};
use oxiray_values::{Common, Encoded, NativeWriter};
use serde::Serialize;

/// What a remote function takes where it is declared to take a `T`: one, or a reference to one, which is waited for
/// where the function runs.
///
/// ```compile_fail,E0277
/// #[oxiray::remote]
/// fn double(number: i64) -> i64 {
///     number * 2
/// }
///
/// let _ = double::remote("two"); // `&str` is no argument where a `i64` is expected
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument where a `{T}` is expected",
    label = "a `{T}`, or an `ObjectRef<{T}>`, is expected here",
    note = "a type can be passed where it implements serde's `Serialize`, and taken where it implements `DeserializeOwned`"
)]
pub trait Argument<T> {
    #[doc(hidden)]
    fn add(self, call: &mut Outgoing) -> Result<()>;
}

impl<T: Serialize> Argument<T> for T {
    fn add(self, call: &mut Outgoing) -> Result<()> {
        call.value(&self)
    }
}

impl<T> Argument<T> for ObjectRef<T> {
    fn add(self, call: &mut Outgoing) -> Result<()> {
        call.reference(&self)
    }
}

impl<T> Argument<T> for &ObjectRef<T> {
    fn add(self, call: &mut Outgoing) -> Result<()> {
        call.reference(self)
    }
}

impl Argument<String> for &str {
    fn add(self, call: &mut Outgoing) -> Result<()> {
        call.value(self)
    }
}

/// The arguments of one call.
#[doc(hidden)]
pub struct Outgoing {
    runtime: Runtime,
    writer: NativeWriter,
    contained: Vec<ObjectId>,
    references: Vec<(Place, ObjectId)>,
    /// Keeps what the references stand for until the call has them.
    held: Vec<Held>,
    position: u32,
}

impl Outgoing {
    pub fn begin() -> Result<Self> {
        Ok(Self {
            runtime: process::required()?,
            writer: NativeWriter::default(),
            contained: Vec::new(),
            references: Vec::new(),
            held: Vec::new(),
            position: 0,
        })
    }

    pub fn add<T>(&mut self, argument: impl Argument<T>) -> Result<()> {
        argument.add(self)?;
        self.position += 1;
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let writer = &mut self.writer;
        let (written, contained) = collecting(|| writer.push(value));
        for id in &contained {
            // The value may be gone before the call is made.
            self.runtime.retain(*id);
            self.held.push(Held { runtime: self.runtime.clone(), id: *id });
        }
        self.contained.extend(contained);
        Ok(written?)
    }

    fn reference<T>(&mut self, reference: &ObjectRef<T>) -> Result<()> {
        let id = reference.id_on(&self.runtime)?;
        self.held.push(reference.held());
        self.references.push((Place::Position(self.position), id));
        Ok(())
    }

    /// The runtime, and the arguments as they travel; what they need lives as long as the third.
    pub(crate) fn finish(self) -> Result<(Runtime, Arguments, Kept)> {
        let Self { runtime, writer, contained, references, held, position } = self;
        if position == 0 {
            return Ok((runtime, Arguments::default(), Kept { _held: held }));
        }
        packed(runtime, writer.finish(), contained, references, held)
    }
}

/// What must not be let go of before the call was made.
pub(crate) struct Kept {
    _held: Vec<Held>,
}

fn packed(
    runtime: Runtime,
    encoded: Encoded,
    contained: Vec<ObjectId>,
    mut references: Vec<(Place, ObjectId)>,
    mut held: Vec<Held>,
) -> Result<(Runtime, Arguments, Kept)> {
    if encoded.size() <= INLINE_BYTES {
        let payload = encoded.into_bytes();
        return Ok((runtime, Arguments { payload, references, contained }, Kept { _held: held }));
    }
    let (task, index) = runtime.next_put(encoded.size());
    let value = keep(&runtime, task.object(index), encoded, &contained, INLINE_BYTES)?;
    let id = runtime.put(task, index, value);
    held.push(Held { runtime: runtime.clone(), id });
    references.push((Place::Everything, id));
    Ok((runtime, Arguments { payload: Bytes::new(), references, contained }, Kept { _held: held }))
}

/// The arguments of a call that another language answers: a list, in which references stand for their values.
pub(crate) fn common<T: Serialize>(arguments: &T) -> Result<(Runtime, Arguments, Kept)> {
    let runtime = process::required()?;
    let (written, contained) = collecting(|| Common::of(arguments));
    let mut list = match written? {
        Common::List(list) => list,
        Common::Null => Vec::new(),
        other => {
            let text = format!("the arguments of a call are a tuple, such as (1, \"two\"); {} was given", other.kind());
            return Err(Error::Invalid(text));
        }
    };
    let mut references = Vec::new();
    let mut held: Vec<Held> = Vec::new();
    for (position, item) in list.iter_mut().enumerate() {
        if let Common::Reference(reference) = item
            && let Some(id) = ObjectId::from_slice(&reference.object)
        {
            runtime.retain(id);
            held.push(Held { runtime: runtime.clone(), id });
            references.push((Place::Position(position as u32), id));
            *item = Common::Null;
        }
    }
    let encoded = Encoded::common(&Common::List(list))?;
    // What stands in the list itself is waited for; only what lies deeper is part of the value.
    let mut left: Vec<ObjectId> = references.iter().map(|(_, id)| *id).collect();
    let contained = contained
        .into_iter()
        .filter(|id| {
            left.iter().position(|other| other == id).is_none_or(|at| {
                left.swap_remove(at);
                false
            })
        })
        .collect();
    packed(runtime, encoded, contained, references, held)
}
