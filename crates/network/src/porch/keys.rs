//! Secrets that open the porch, and what each opens.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The fewest characters of a secret that somebody else chose.
const KEY_CHARACTERS_MIN: usize = 16;
/// Random bytes of a secret that is made here.
const KEY_BYTES: usize = 32;
/// How many secrets there may be that end; the one that ends first makes room.
const LENT_MAX: usize = 256;

/// What a secret opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Everything.
    All,
    /// What changes nothing.
    Read,
    /// The exchange for a session's secret, once.
    Trade,
}

/// Which secret somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// One that does not end and opens everything.
    Token,
    /// One that does not end and reads only.
    ReadToken,
    /// One that opens an exchange, once.
    OneTimeKey,
    /// What that was exchanged for.
    SessionKey,
}

impl KeyKind {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::ReadToken => "read_token",
            Self::OneTimeKey => "one_time_key",
            Self::SessionKey => "session_key",
        }
    }
}

/// Why a secret is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It could be guessed.
    #[error("the token has {0} characters, and fewer than {KEY_CHARACTERS_MIN} could be guessed: take a longer one")]
    Short(usize),
    /// No header can carry it.
    #[error("the token has a character that no header can carry: take letters, digits and the like")]
    Unsendable,
    /// There is no randomness.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// One secret, by its digest.
struct Key {
    digest: [u8; 32],
    right: Right,
    until: Option<Instant>,
}

/// All secrets that open a porch (PORCH-4).
#[derive(Default)]
pub struct Keys {
    all: Mutex<Vec<Key>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    /// Takes a secret that somebody chose, for as long as this process lives.
    ///
    /// # Errors
    /// Where it is none that protects anything.
    pub fn add(&self, secret: &str, right: Right) -> Result<(), KeyError> {
        if secret.len() < KEY_CHARACTERS_MIN {
            return Err(KeyError::Short(secret.len()));
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::Unsendable);
        }
        self.locked().push(Key { digest: digest_of(secret.as_bytes()), right, until: None });
        Ok(())
    }

    /// Makes a secret that ends.
    ///
    /// # Errors
    /// Where there is no randomness.
    pub fn lend(&self, right: Right, now: Instant, lifetime: Duration) -> Result<String, KeyError> {
        let secret = new_secret()?;
        let mut all = self.locked();
        all.retain(|key| key.until.is_none_or(|until| until > now));
        let lent = all.iter().filter(|key| key.until.is_some());
        if lent.clone().count() >= LENT_MAX
            && let Some(first) = lent.filter_map(|key| key.until).min()
        {
            all.retain(|key| key.until != Some(first));
        }
        all.push(Key { digest: digest_of(secret.as_bytes()), right, until: Some(now + lifetime) });
        Ok(secret)
    }

    /// What the secret opens; `None` where it is none.
    pub fn right_of(&self, secret: &[u8], now: Instant) -> Option<Right> {
        self.found(secret, now).map(|(right, _)| right)
    }

    /// Which one the secret is; `None` where it is none.
    pub fn kind_of(&self, secret: &[u8], now: Instant) -> Option<KeyKind> {
        self.found(secret, now).map(|found| match found {
            (Right::All, false) => KeyKind::Token,
            (Right::All, true) => KeyKind::SessionKey,
            (Right::Read, _) => KeyKind::ReadToken,
            (Right::Trade, _) => KeyKind::OneTimeKey,
        })
    }

    /// What the secret opens, and whether it ends.
    fn found(&self, secret: &[u8], now: Instant) -> Option<(Right, bool)> {
        let given = digest_of(secret);
        let mut found = None;
        // All are compared, whichever it is.
        for key in self.locked().iter().filter(|key| key.until.is_none_or(|until| until > now)) {
            if is_same(&given, &key.digest) {
                found = Some((key.right, key.until.is_some()));
            }
        }
        found
    }

    /// Uses a secret up that opens an exchange; `false` where it is none, or was used.
    pub fn use_up(&self, secret: &[u8], now: Instant) -> bool {
        let given = digest_of(secret);
        let mut all = self.locked();
        let is_it = |key: &Key| {
            let is_valid = key.right == Right::Trade && key.until.is_none_or(|until| until > now);
            is_same(&given, &key.digest) && is_valid
        };
        let found = all.iter().position(is_it);
        found.map(|at| all.swap_remove(at)).is_some()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Key>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A secret of 256 random bits, in hexadecimal digits.
///
/// # Errors
/// Where there is no randomness.
pub fn new_secret() -> Result<String, KeyError> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    let mut text = String::with_capacity(2 * KEY_BYTES);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn digest_of(secret: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, secret).as_ref());
    bytes
}

/// Digests of what nobody can choose to be alike; the time says how many of their bytes are, and nothing of the secrets.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}
