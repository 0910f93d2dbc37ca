//! A certificate is renewed before it ends: a node makes another key, and the head certifies it over the stream that the
//! two have.

use crate::authority::{Certified, PUBLIC_KEY_BYTES};
use crate::clock::ClusterClock;
use crate::tls::{Credentials, Identity};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::time::Duration;

/// Why there is no other certificate.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// No key can be made.
    #[error("a key cannot be made: {0}")]
    Key(#[from] rcgen::Error),
    /// What came is no certificate of this key.
    #[error("the head's certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
}

/// A key that is to be certified.
#[derive(Debug)]
pub struct Renewal {
    key: KeyPair,
}

impl Renewal {
    /// Makes a key.
    ///
    /// # Errors
    /// Where the random source or the generator fails.
    pub fn begin() -> Result<Self, RenewalError> {
        Ok(Self { key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)? })
    }

    /// What the head is to certify.
    pub fn public_key(&self) -> &[u8] {
        self.key.public_key_raw()
    }

    pub(crate) fn whole_public_key(&self) -> Option<[u8; PUBLIC_KEY_BYTES]> {
        self.public_key().try_into().ok()
    }

    /// The credentials that the node has from here on, in a cluster that it was let into before.
    ///
    /// # Errors
    /// Where the certificate is none of this key.
    pub fn finish(
        self,
        before: &Credentials,
        certified: Certified,
        protocol: &[u8],
    ) -> Result<Credentials, RenewalError> {
        Ok(self.credentials(before.identity.authority.clone(), certified, protocol)?)
    }

    pub(crate) fn credentials(
        self,
        authority: CertificateDer<'static>,
        certified: Certified,
        protocol: &[u8],
    ) -> Result<Credentials, rustls::Error> {
        let Certified { certificate, now_s, lifetime_s } = certified;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let identity = Identity { authority, certificate: CertificateDer::from(certificate), key };
        let clock = ClusterClock::set(Duration::from_secs(now_s));
        Credentials::new(identity, protocol, clock, Duration::from_secs(lifetime_s.into()))
    }
}
