//! An answer as it is sent.

use crate::ordered::Ordered;

/// A status of HTTP, and a body of JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RayAnswer {
    /// The status.
    pub code: u16,
    /// The body.
    pub body: String,
}

impl RayAnswer {
    /// In the form of most of Ray's answers: whether all went well, a text, and what was asked for.
    pub(crate) fn of(code: u16, text: &str, data: Ordered) -> Self {
        let is_well = code < 400;
        Self::plain(code, &Ordered::map([("result", is_well.into()), ("msg", text.into()), ("data", data)]))
    }

    /// The value alone.
    pub(crate) fn plain(code: u16, value: &Ordered) -> Self {
        Self { code, body: value.body() }
    }
}
