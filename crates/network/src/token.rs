//! The join token: what a machine must have to become part of a cluster.
//!
//! `oxr1.<fingerprint>.<secret>`, both in 64 hexadecimal digits. The fingerprint is the SHA-256 of the certificate of the
//! cluster's authority, by which a newcomer knows the head; by the secret the head knows the newcomer.

use std::fmt;

/// What every token begins with, and the version of its form.
const PREFIX: &str = "oxr1";
/// Bytes of either part.
pub(crate) const PART_BYTES: usize = 32;
/// Bytes of a token's name.
const ID_BYTES: usize = 6;
/// The longest token that is read: no more of a file is looked at.
const TEXT_BYTES_LIMIT: usize = 256;

/// The key to a cluster. It says nothing of its secret where it is printed for debugging (NETWORK-5).
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub(crate) fingerprint: [u8; PART_BYTES],
    pub(crate) secret: [u8; PART_BYTES],
}

/// A text is no join token. It says nothing of the text, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not begin as tokens do.
    #[error("it does not begin with `{PREFIX}.`: give the file that `oxiray start --head` names, or a copy of it")]
    Prefix,
    /// It is cut off, or otherwise changed.
    #[error("it is not whole: copy the file again, `{PREFIX}.` and twice 64 hexadecimal digits with a dot between")]
    Form,
}

impl JoinToken {
    /// Reads the text of a token, with blanks around it.
    ///
    /// # Errors
    /// Where it is no token; the text is not repeated in the error.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('.')).ok_or(TokenError::Prefix)?;
        let (fingerprint, secret) =
            rest.split_once('.').filter(|_| text.len() <= TEXT_BYTES_LIMIT).ok_or(TokenError::Form)?;
        Ok(Self { fingerprint: digits(fingerprint)?, secret: digits(secret)? })
    }

    /// Names the token, and says nothing of its secret.
    pub fn id(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, &self.secret);
        Hexadecimal(&digest.as_ref()[..ID_BYTES]).to_string()
    }

    /// Another token of the same cluster.
    #[must_use]
    pub fn sibling(&self, secret: [u8; 32]) -> Self {
        Self { secret, ..*self }
    }

    /// Its secret, for whoever keeps it.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The text for its file: the one place where the secret stands as text.
    pub fn to_text(&self) -> String {
        format!("{PREFIX}.{}.{}", Hexadecimal(&self.fingerprint), Hexadecimal(&self.secret))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({PREFIX}.{}.…)", Hexadecimal(&self.fingerprint))
    }
}

struct Hexadecimal<'bytes>(&'bytes [u8]);

impl fmt::Display for Hexadecimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn digits(text: &str) -> Result<[u8; PART_BYTES], TokenError> {
    let digits = text.as_bytes();
    if digits.len() != PART_BYTES * 2 {
        return Err(TokenError::Form);
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8).ok_or(TokenError::Form);
    let mut bytes = [0; PART_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}
