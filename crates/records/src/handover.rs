//! A connection on its way from who has made it to who uses it.

use crate::{Secret, invalid};
use std::io;
use zeroize::Zeroizing;

/// What belongs to a connection besides its socket, which goes along as a descriptor. All in one packet.
#[derive(Debug, PartialEq, Eq)]
pub struct Handover {
    /// For what is sent.
    pub sealing: Secret,
    /// For what comes.
    pub opening: Secret,
    /// What the peer has said already, opened.
    pub early: Vec<u8>,
    /// Records that go out before all others.
    pub unsent: Vec<u8>,
}

impl Handover {
    /// As one packet, which is overwritten when it is dropped.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let secrets = self.sealing.packed_bytes() + self.opening.packed_bytes();
        // It never grows: that would leave the keys behind in the memory that it had before.
        let mut bytes = Zeroizing::new(Vec::with_capacity(secrets + 4 + self.early.len() + self.unsent.len()));
        self.sealing.append(&mut bytes);
        self.opening.append(&mut bytes);
        bytes.extend_from_slice(&(self.early.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.early);
        bytes.extend_from_slice(&self.unsent);
        bytes
    }

    /// The packet's content.
    ///
    /// # Errors
    /// Where it is not whole.
    pub fn parse(bytes: &[u8]) -> io::Result<Self> {
        Self::split(bytes).ok_or_else(|| invalid("what a connection needs did not come whole"))
    }

    fn split(bytes: &[u8]) -> Option<Self> {
        let (sealing, rest) = Secret::split(bytes)?;
        let (opening, rest) = Secret::split(rest)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (early, unsent) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self { sealing, opening, early: early.to_vec(), unsent: unsent.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cipher;

    #[test]
    fn a_connection_survives_its_packet_and_half_a_packet_is_none() {
        let secret = |cipher, bytes, sequence| Secret::new(cipher, &vec![3; bytes], &[5; 12], sequence).expect("a key");
        let handover = Handover {
            sealing: secret(Cipher::ChaCha20Poly1305, 32, 7),
            opening: secret(Cipher::Aes128Gcm, 16, u64::MAX),
            early: vec![1, 2, 3],
            unsent: vec![4; 300],
        };
        let bytes = handover.to_bytes();
        assert_eq!(Handover::parse(&bytes).expect("it is whole"), handover);
        let whole = bytes.len() - handover.unsent.len();
        for end in 0..whole {
            assert!(Handover::parse(&bytes[..end]).is_err(), "{end} bytes");
        }
        let mut unknown = bytes;
        unknown[0] = 9;
        assert!(Handover::parse(&unknown).is_err());
        assert!(!format!("{handover:?}").contains("key"), "a secret is not printed");
    }

    #[test]
    fn a_key_of_the_wrong_length_is_none() {
        assert!(Secret::new(Cipher::Aes256Gcm, &[0; 16], &[0; 12], 0).is_err());
        assert!(Secret::new(Cipher::Aes256Gcm, &[0; 32], &[0; 11], 0).is_err());
    }
}
