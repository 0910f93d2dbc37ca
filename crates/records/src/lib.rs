//! Records of TLS 1.3, sealed and opened where their bytes are, and a connection's keys on their way to who does it.
//!
//! `rustls` makes a connection, and hands its keys over, as it does for kernels that seal records themselves. Its own
//! records are copied several times on each side, which for objects costs more than the ciphers do; and who has the keys
//! need not be who has made the connection ([`Handover`]).
//!
//! - RECORDS-1: no sequence number is used twice with a key, and no more than the key's cipher is good for: a stream that
//!   has come so far ends, and whoever needs one gets another, with other keys. ChaCha20-Poly1305 knows no such limit.
//! - RECORDS-2: keys are in one process at a time: who hands them over has none left, and their bytes are overwritten when
//!   they are dropped. (`ring` does not overwrite the cipher's own tables.)
//! - RECORDS-3: the end of a stream says nothing of the last message, whether `close_notify` comes before it or not: whoever
//!   is between the two peers can cut a stream anywhere, and a process that dies says no farewell. So every protocol above
//!   knows by itself how long each message is, acts on none that is not whole, and takes every end for the peer's loss.

mod handover;
mod secret;

pub use handover::Handover;
pub use secret::{Cipher, Secret};

use ring::aead::{Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use std::io::{self, ErrorKind};
use zeroize::Zeroizing;

/// The most bytes of content in a record.
pub const CONTENT_MAX: usize = 16 << 10;
/// What a record begins with: what it says it is, which is always application data; a version; and its length.
const HEADER_BYTES: usize = 5;
/// What a record is longer than its content: header, kind and tag.
pub const OVERHEAD: usize = HEADER_BYTES + 1 + MAX_TAG_LEN;
/// The longest record that the standard allows; it may be padded.
pub const RECORD_MAX: usize = HEADER_BYTES + CONTENT_MAX + 256;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// That the peer ends, or has found fault.
    Alert = 21,
    /// What TLS says after its handshake.
    Handshake = 22,
    /// Content.
    Data = 23,
}

/// The keys of one direction.
struct Keys {
    key: LessSafeKey,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    sequence: u64,
    records_max: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

impl Keys {
    fn new(secret: &Secret) -> io::Result<Self> {
        let (cipher, key, iv, sequence) = secret.parts();
        let key =
            UnboundKey::new(cipher.algorithm(), key).map_err(|_| invalid("a key is not of its cipher's length"))?;
        Ok(Self { key: LessSafeKey::new(key), iv: iv.clone(), sequence, records_max: cipher.records_max() })
    }

    /// RECORDS-1.
    fn nonce(&mut self) -> io::Result<Nonce> {
        if self.sequence >= self.records_max {
            return Err(io::Error::other("its keys were used for as many records as they are good for"));
        }
        let mut nonce = *self.iv;
        for (byte, part) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= part;
        }
        self.sequence += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// Seals what is sent.
#[derive(Debug)]
pub struct Sealer(Keys);

impl Sealer {
    /// Goes on where the secret's sequence is.
    ///
    /// # Errors
    /// Where its key is none.
    pub fn new(secret: &Secret) -> io::Result<Self> {
        Keys::new(secret).map(Self)
    }

    /// Adds to `out` records with `head`, then `body`, as their content.
    ///
    /// # Errors
    /// Where the keys are used up (RECORDS-1).
    pub fn seal(&mut self, kind: Kind, mut head: &[u8], mut body: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        while !head.is_empty() || !body.is_empty() {
            let of_head = head.len().min(CONTENT_MAX);
            let of_body = body.len().min(CONTENT_MAX - of_head);
            // Before anything is put into `out`, which never has content that is not sealed.
            let nonce = self.0.nonce()?;
            let (start, length) = (out.len(), of_head + of_body + 1 + MAX_TAG_LEN);
            let [high, low] = (length as u16).to_be_bytes();
            let header = [Kind::Data as u8, 3, 3, high, low];
            out.extend_from_slice(&header);
            out.extend_from_slice(&head[..of_head]);
            out.extend_from_slice(&body[..of_body]);
            out.push(kind as u8);
            let content = &mut out[start + HEADER_BYTES..];
            let Ok(tag) = self.0.key.seal_in_place_separate_tag(nonce, Aad::from(header), content) else {
                out.truncate(start);
                return Err(invalid("a record cannot be sealed"));
            };
            out.extend_from_slice(tag.as_ref());
            (head, body) = (&head[of_head..], &body[of_body..]);
        }
        Ok(())
    }
}

/// Opens what comes.
#[derive(Debug)]
pub struct Opener(Keys);

impl Opener {
    /// Goes on where the secret's sequence is.
    ///
    /// # Errors
    /// Where its key is none.
    pub fn new(secret: &Secret) -> io::Result<Self> {
        Keys::new(secret).map(Self)
    }

    /// The length of the record that these bytes begin with, where that is known.
    ///
    /// # Errors
    /// Where they begin with none.
    pub fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let length = HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != Kind::Data as u8 || !(OVERHEAD..=RECORD_MAX).contains(&length) {
            return Err(invalid("what came is no record of TLS 1.3"));
        }
        Ok(Some(length))
    }

    /// Opens the record that lies at `from` in `place` and ends with it. Its content is put where `place` begins; returns
    /// of what kind it is, and how long.
    ///
    /// # Errors
    /// Where it is not as it was sealed, or does not come next.
    pub fn open(&mut self, place: &mut [u8], from: usize) -> io::Result<(Kind, usize)> {
        let header: [u8; HEADER_BYTES] =
            place.get(from..).and_then(<[u8]>::first_chunk).copied().ok_or_else(|| invalid("a record is not whole"))?;
        let nonce = self.0.nonce()?;
        let content = self.0.key.open_within(nonce, Aad::from(header), place, from + HEADER_BYTES..);
        let content = content.map_err(|_| invalid("a record is not what the peer has sealed"))?;
        if content.len() > CONTENT_MAX + 1 {
            return Err(invalid("a record holds more than the standard allows"));
        }
        // Behind the content come its kind, and zeros as padding.
        let last = content.iter().rposition(|byte| *byte != 0).ok_or_else(|| invalid("a record is of no kind"))?;
        let kind = [Kind::Alert, Kind::Handshake, Kind::Data].into_iter().find(|kind| *kind as u8 == content[last]);
        kind.map(|kind| (kind, last)).ok_or_else(|| invalid("a record is of a kind that is not known"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(cipher: Cipher) -> (Sealer, Opener) {
        let secret = Secret::new(cipher, &vec![7; cipher.algorithm().key_len()], &[9; 12], 0).expect("a key");
        (Sealer::new(&secret).expect("keys"), Opener::new(&secret).expect("keys"))
    }

    #[test]
    fn what_is_sealed_is_opened_in_its_order_and_wherever_it_lies() {
        let (mut sealer, mut opener) = pair(Cipher::Aes128Gcm);
        let (head, body) = ([1; 20], vec![2; CONTENT_MAX]);
        let mut out = Vec::new();
        sealer.seal(Kind::Data, &head, &body, &mut out).expect("sealed");
        let first = Opener::length(&out).expect("a record").expect("whole");
        assert_eq!(first, CONTENT_MAX + OVERHEAD);
        let mut place = vec![0; 100];
        place.extend_from_slice(&out[..first]);
        assert_eq!(opener.open(&mut place, 100).expect("it is whole"), (Kind::Data, CONTENT_MAX));
        assert_eq!((&place[..20], &place[20..CONTENT_MAX]), (&head[..], &body[20..]));
        let mut rest = out.split_off(first);
        assert_eq!(Opener::length(&rest).expect("a record"), Some(rest.len()));
        assert_eq!(opener.open(&mut rest, 0).expect("it is whole"), (Kind::Data, 20));
    }

    #[test]
    fn what_was_changed_or_comes_twice_is_refused() {
        let (mut sealer, mut opener) = pair(Cipher::Aes128Gcm);
        let mut out = Vec::new();
        sealer.seal(Kind::Alert, &[1, 0], &[], &mut out).expect("sealed");
        let mut changed = out.clone();
        changed[OVERHEAD - 1] ^= 1;
        assert!(opener.open(&mut changed, 0).is_err());
        let (_, mut opener) = pair(Cipher::Aes128Gcm);
        assert_eq!(opener.open(&mut out.clone(), 0).expect("as sealed"), (Kind::Alert, 2));
        assert!(opener.open(&mut out, 0).is_err());
        assert!(Opener::length(&[22, 3, 3, 0, 40]).is_err() && Opener::length(&[23, 3, 3, 255, 255]).is_err());
    }

    #[test]
    fn keys_are_used_no_more_than_they_are_good_for() {
        for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let (mut sealer, mut out) = (pair(cipher).0, Vec::new());
            sealer.0.sequence = cipher.records_max() - 1;
            sealer.seal(Kind::Data, &[1], &[], &mut out).expect("the last one");
            let sealed = out.clone();
            assert!(sealer.seal(Kind::Data, &[1], &[], &mut out).is_err());
            assert_eq!(out, sealed, "nothing that is not sealed is to be sent");
        }
    }
}
