//! The head of a request as bytes.

use super::HEAD_BYTES_MAX;

/// The most fields that a head may have.
const FIELDS_MAX: usize = 64;

/// The head of a request: what stands before its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead<'bytes> {
    /// `GET` and the like.
    pub method: &'bytes str,
    /// Path and query, as they were sent.
    pub target: &'bytes str,
    /// The fields in the order in which they came.
    pub fields: Vec<(&'bytes str, &'bytes [u8])>,
}

/// Why bytes are no head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// It is longer than [`HEAD_BYTES_MAX`], or has too many fields.
    #[error("the head of a request may have {HEAD_BYTES_MAX} bytes and {FIELDS_MAX} fields")]
    TooLong,
    /// It is not HTTP/1.
    #[error("this is no request of HTTP/1")]
    Malformed,
}

impl<'bytes> RequestHead<'bytes> {
    /// The values of all fields of that name, which is given in small letters.
    pub fn all<'own>(&'own self, name: &'own str) -> impl Iterator<Item = &'bytes [u8]> + 'own {
        self.fields.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    /// Whether there is a field whose name begins so.
    pub(super) fn has_prefixed(&self, prefix: &str) -> bool {
        let begins = |name: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        self.fields.iter().any(|(name, _)| begins(name))
    }

    /// The path without the query.
    pub fn path(&self) -> &'bytes str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }
}

/// The head that these bytes begin with, and how long it is; `None` where more of it has to come (PORCH-2).
///
/// # Errors
/// Where no more bytes make a head of it.
pub fn parse_head(bytes: &[u8]) -> Result<Option<(RequestHead<'_>, usize)>, HeadError> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    let looked_at = &bytes[..end.unwrap_or(bytes.len())];
    // Who takes a bare line feed for the end of a line and who does not read two different requests.
    let is_bare = |(at, byte): (usize, &u8)| *byte == b'\n' && (at == 0 || looked_at[at - 1] != b'\r');
    if looked_at.iter().enumerate().any(is_bare) {
        return Err(HeadError::Malformed);
    }
    let too_long = looked_at.len() > HEAD_BYTES_MAX || end.is_none() && looked_at.len() == HEAD_BYTES_MAX;
    if too_long {
        return Err(HeadError::TooLong);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match (request.parse(looked_at), end) {
        (Ok(httparse::Status::Complete(length)), Some(end)) if length == end => {}
        (Ok(httparse::Status::Partial), None) => return Ok(None),
        (Err(httparse::Error::TooManyHeaders), _) => return Err(HeadError::TooLong),
        _ => return Err(HeadError::Malformed),
    }
    let (Some(method), Some(target)) = (request.method, request.path) else { return Err(HeadError::Malformed) };
    let fields = request.headers.iter().map(|field| (field.name, field.value)).collect();
    Ok(Some((RequestHead { method, target, fields }, looked_at.len())))
}
