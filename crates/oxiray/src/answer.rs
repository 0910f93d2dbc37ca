//! How a call is answered: with a value, with several, or with items that come one by one.
//!
//! - ANSWER-1: an item is written and sent before the next is asked for.
//! - ANSWER-2: items that arrived before the call was run again are counted and not sent again.

use crate::error::{Error, Result};
use crate::incoming::{KeptResult, Made, Outcome, Wanted};
use crate::objects;
use crate::process;
use crate::reference::collecting;
use oxiray_runtime::{INLINE_BYTES, Pace, Runtime, Ticket, Yielded};
use oxiray_values::{Common, Encoded};
use oxiray_wire::message::{Content, StreamTerms};
use serde::Serialize;
use std::cell::Cell;

/// How values are written: as the call's arguments were.
#[doc(hidden)]
pub struct Form<'call> {
    pub(crate) is_common: bool,
    pub(crate) runtime: &'call Runtime,
}

impl Form<'_> {
    fn kept<T: Serialize + ?Sized>(&self, value: &T) -> Result<KeptResult> {
        let (encoded, contained) = collecting(|| {
            if self.is_common {
                Common::of(value).and_then(|common| Encoded::common(&common))
            } else {
                Encoded::native(value)
            }
        });
        let encoded = encoded?;
        // The value is gone before the answer is sent.
        self.runtime.retain_all(&contained);
        Ok((encoded, contained))
    }

    /// A list or tuple of another language's, part by part. Each part keeps what any of them refers to.
    fn parts<T: Serialize>(&self, value: &T, count: u32) -> Result<Vec<KeptResult>> {
        let (common, contained) = collecting(|| Common::of(value));
        let parts = match common? {
            Common::List(parts) => parts,
            other => return Err(miscounted(count, other.kind())),
        };
        if parts.len() != count as usize {
            return Err(miscounted(count, &format!("a list of {}", parts.len())));
        }
        let encoded = parts.iter().map(Encoded::common).collect::<std::result::Result<Vec<_>, _>>()?;
        let kept = |encoded| {
            self.runtime.retain_all(&contained);
            (encoded, contained.clone())
        };
        Ok(encoded.into_iter().map(kept).collect())
    }
}

fn miscounted(count: u32, returned: &str) -> Error {
    Error::Invalid(format!("{count} results were asked for with num_returns, and the function returned {returned}"))
}

/// How a call is answered.
#[doc(hidden)]
pub struct Answer<'call> {
    pub(crate) form: Form<'call>,
    pub(crate) wanted: Wanted<'call>,
}

impl Answer<'_> {
    /// With a value.
    pub fn value<T: Serialize>(self, value: &T) -> Outcome {
        match self.wanted {
            Wanted::Results(1) => self.form.kept(value).map(Made::One),
            Wanted::Results(0) => Ok(Made::Several(Vec::new())),
            // Who calls from another language may take a list apart.
            Wanted::Results(count) if self.form.is_common => self.form.parts(value, count).map(Made::Several),
            Wanted::Results(count) => Err(miscounted(count, "one")),
            Wanted::Items(_) => Err(Error::Invalid(
                "num_returns=\"streaming\" was asked for, and the function returns one value: leave num_returns out, or \
                 have it return an `impl Iterator<Item = …>`"
                    .into(),
            )),
        }
    }

    /// With the parts of a tuple, each a result of its own.
    pub fn several<T: Parts>(self, parts: &T) -> Outcome {
        let Wanted::Results(count) = self.wanted else { return self.value(parts) };
        if self.form.is_common || count == 0 {
            return self.value(parts);
        }
        if count as usize != T::COUNT {
            return Err(miscounted(count, &format!("a tuple of {}", T::COUNT)));
        }
        let (made, failed): (Vec<_>, Vec<_>) = parts.kept(&self.form).into_iter().partition(Result::is_ok);
        let made = Made::Several(made.into_iter().flatten().collect());
        match failed.into_iter().find_map(Result::err) {
            None => Ok(made),
            Some(error) => {
                made.release(self.form.runtime);
                Err(error)
            }
        }
    }

    /// With items, one by one.
    pub fn items<T: Serialize>(self, items: impl Iterator<Item = T>) -> Outcome {
        self.fallible_items(items.map(Ok))
    }

    /// With items, one by one, until there is an error in place of one.
    pub fn fallible_items<T: Serialize>(self, items: impl Iterator<Item = Result<T>>) -> Outcome {
        let Wanted::Items(sink) = self.wanted else {
            return Err(Error::Invalid(
                "the function yields its results one by one: call it with num_returns=\"streaming\"".into(),
            ));
        };
        for item in items {
            if sink.send(&self.form, &item?)? == Pace::Stop {
                break;
            }
        }
        self.form.kept(&()).map(Made::One)
    }
}

/// Where a call's items go.
pub(crate) struct Sink<'call> {
    pub(crate) ticket: &'call Ticket,
    pub(crate) terms: &'call StreamTerms,
    /// How many items there were.
    pub(crate) yielded: Cell<u32>,
}

impl Sink<'_> {
    /// ANSWER-1: returns when the next item is wanted, or none is any more.
    fn send<T: Serialize>(&self, form: &Form<'_>, item: &T) -> Result<Pace> {
        let index = self.yielded.get();
        if index < self.terms.arrived {
            // ANSWER-2.
            self.yielded.set(index + 1);
            return Ok(Pace::On);
        }
        let (runtime, task) = (form.runtime, self.ticket.task());
        if self.terms.per_yield > 1 {
            let text = "_num_objects_per_yield is for Python's generators: have each item be one value";
            return Err(Error::Invalid(text.into()));
        }
        let (encoded, handed) = form.kept(item)?;
        let id = Runtime::item_id(task, index);
        let value = objects::keep(runtime, id, encoded, &handed, INLINE_BYTES).inspect_err(|_| {
            runtime.release_all(&handed);
        })?;
        self.yielded.set(index + 1);
        let stored = matches!(value.content, Some(Content::Stored(_))).then_some(id);
        let mut pace = runtime.yield_item(self.ticket, Yielded { index, value, handed, stored });
        if pace == Pace::Wait {
            pace = process::patiently(|| runtime.await_reader(task, index + 1))?;
        }
        Ok(if runtime.is_cancelled(task) { Pace::Stop } else { pace })
    }
}

/// A tuple whose parts are results of their own.
#[doc(hidden)]
pub trait Parts: Serialize {
    /// How many there are.
    const COUNT: usize;
    /// Each as a result.
    fn kept(&self, form: &Form<'_>) -> Vec<Result<KeptResult>>;
}

macro_rules! tuples {
    ($($count:literal: $($part:ident $place:tt),+;)+) => {$(
        impl<$($part: Serialize),+> Parts for ($($part,)+) {
            const COUNT: usize = $count;

            fn kept(&self, form: &Form<'_>) -> Vec<Result<KeptResult>> {
                vec![$(form.kept(&self.$place)),+]
            }
        }
    )+};
}

tuples! {
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}
