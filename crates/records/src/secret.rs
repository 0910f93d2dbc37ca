//! The keys of one direction of a connection.

use crate::invalid;
use ring::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305, NONCE_LEN};
use std::fmt;
use std::io;
use zeroize::Zeroizing;

/// How many full records a key of AES-GCM is good for (RFC 8446, 5.5), rounded down: 256 GiB.
const RECORDS_OF_AES: u64 = 1 << 24;
/// Bytes of a secret before its key: the cipher, the sequence number, the initialisation vector.
const HEAD_BYTES: usize = 1 + 8 + NONCE_LEN;

/// The ciphers of TLS 1.3 that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// `TLS_AES_128_GCM_SHA256`.
    Aes128Gcm = 1,
    /// `TLS_AES_256_GCM_SHA384`.
    Aes256Gcm = 2,
    /// `TLS_CHACHA20_POLY1305_SHA256`.
    ChaCha20Poly1305 = 3,
}

impl Cipher {
    pub(crate) fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    /// How many records a key is good for (RECORDS-1).
    pub(crate) fn records_max(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => RECORDS_OF_AES,
            // None before the numbers are used up.
            Self::ChaCha20Poly1305 => u64::MAX,
        }
    }

    fn numbered(number: u8) -> Option<Self> {
        [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305].into_iter().find(|cipher| *cipher as u8 == number)
    }
}

/// What seals or opens the records of one direction, and the number of the next one. It is not printed, and overwritten
/// when it is dropped.
#[derive(PartialEq, Eq)]
pub struct Secret {
    cipher: Cipher,
    key: Zeroizing<Vec<u8>>,
    iv: Zeroizing<[u8; NONCE_LEN]>,
    sequence: u64,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("cipher", &self.cipher).field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl Secret {
    /// What TLS has agreed on.
    ///
    /// # Errors
    /// Where key or vector are not of the cipher's length.
    pub fn new(cipher: Cipher, key: &[u8], iv: &[u8], sequence: u64) -> io::Result<Self> {
        let iv = Zeroizing::new(iv.try_into().map_err(|_| invalid("a vector is not of its cipher's length"))?);
        if key.len() != cipher.algorithm().key_len() {
            return Err(invalid("a key is not of its cipher's length"));
        }
        Ok(Self { cipher, key: Zeroizing::new(key.to_vec()), iv, sequence })
    }

    pub(crate) fn parts(&self) -> (Cipher, &[u8], &Zeroizing<[u8; NONCE_LEN]>, u64) {
        (self.cipher, &self.key, &self.iv, self.sequence)
    }

    /// How many bytes it is as a part of a packet.
    pub(crate) fn packed_bytes(&self) -> usize {
        HEAD_BYTES + self.key.len()
    }

    pub(crate) fn append(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.cipher as u8);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&*self.iv);
        bytes.extend_from_slice(&self.key);
    }

    /// The secret that the bytes begin with, and what is behind it; nothing where there is none.
    pub(crate) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let cipher = Cipher::numbered(head[0])?;
        let sequence = u64::from_le_bytes(head[1..9].try_into().ok()?);
        let (key, rest) = rest.split_at_checked(cipher.algorithm().key_len())?;
        Some((Self::new(cipher, key, &head[9..], sequence).ok()?, rest))
    }
}
