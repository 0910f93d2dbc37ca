//! The cluster's own certificate authority. It lives in the head, and ends with the cluster.
//!
//! - AUTHORITY-1: the certificate of a node is valid for a day, by the head's clock, and is renewed when half of that is
//!   over. It is valid for the hour before, too, since the next head's clock may be behind.

use crate::clock::ClusterClock;
use crate::tls::{Credentials, Identity};
use crate::token::{JoinToken, PART_BYTES};
use oxiray_ids::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::time::Duration;

/// The name that only the head's certificate has.
pub(crate) const HEAD_NAME: &str = "head.oxiray";
/// For how long a certificate is valid, where nothing else is said (AUTHORITY-1).
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// For how long before its making it is valid, too.
const BACKDATED: Duration = Duration::from_secs(3600);
/// Bytes of an uncompressed point on the curve P-256.
pub(crate) const PUBLIC_KEY_BYTES: usize = 65;

/// What the name in a node's certificate ends with.
const NODE_SUFFIX: &str = ".node.oxiray";

/// The name in a node's certificate.
pub(crate) fn name_of(node: NodeId) -> String {
    format!("{node}{NODE_SUFFIX}")
}

/// The node that a certificate's name is of.
pub(crate) fn node_named(name: &str) -> Option<NodeId> {
    NodeId::from_hex(name.strip_suffix(NODE_SUFFIX)?).ok()
}

/// What the text of an authority begins with, and the version of its form.
const PREFIX: &str = "oxa1";

/// All that an authority is made of, for whoever keeps it. It says nothing where it is printed for debugging (NETWORK-5).
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorityParts {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// The private key, in PKCS#8.
    pub key: Vec<u8>,
    /// What the join token's secret is.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for AuthorityParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthorityParts(…)")
    }
}

/// A text is no authority. It says nothing of the text, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no cluster's authority, which is `{PREFIX}.` and three runs of hexadecimal digits with dots between")]
pub struct NoAuthority;

impl AuthorityParts {
    /// The text for its file: whoever has it can pose as any node of the cluster.
    pub fn to_text(&self) -> String {
        let hexadecimal = |bytes: &[u8]| {
            use std::fmt::Write as _;
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let parts = [&self.certificate, &self.key, &self.secret].map(|part| hexadecimal(part));
        format!("{PREFIX}.{}", parts.join("."))
    }

    /// Reads such a text, with blanks around it.
    ///
    /// # Errors
    /// Where it is none; the text is not repeated in the error.
    pub fn parse(text: &str) -> Result<Self, NoAuthority> {
        let mut parts = text.trim().split('.');
        if parts.next() != Some(PREFIX) {
            return Err(NoAuthority);
        }
        let mut part = || bytes(parts.next().ok_or(NoAuthority)?);
        let read = Self { certificate: part()?, key: part()?, secret: part()? };
        if parts.next().is_some() { Err(NoAuthority) } else { Ok(read) }
    }
}

fn bytes(digits: &str) -> Result<Vec<u8>, NoAuthority> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).map(|value| value as u8).ok_or(NoAuthority);
    let digits = digits.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return Err(NoAuthority);
    }
    digits.chunks_exact(2).map(|pair| Ok(value(&pair[0])? << 4 | value(&pair[1])?)).collect()
}

/// No key or certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The generator of certificates refused.
    #[error("a certificate cannot be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// What was kept of an authority is no secret.
    #[error("the secret that was kept of the cluster's authority has not {PART_BYTES} bytes")]
    Secret,
    /// What was to be certified is no key.
    #[error("a key on the curve P-256 has {PUBLIC_KEY_BYTES} bytes, and what was to be certified has not")]
    Key,
    /// TLS refused what was made.
    #[error("a certificate cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

/// A certificate, and what its holder must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// When it was made, in seconds since 1970.
    pub now_s: u64,
    /// For how many seconds from then on it is valid.
    pub lifetime_s: u32,
}

/// Signs the certificates of a cluster, and knows the secret that lets a node in.
#[derive(Debug)]
pub struct Authority {
    clock: ClusterClock,
    lifetime: Duration,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    token: JoinToken,
}

impl Authority {
    /// A new authority with a new secret.
    ///
    /// # Errors
    /// Where the random source or the generator fails.
    pub fn make() -> Result<Self, AuthorityError> {
        let params = params();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?.der().clone();
        let token = JoinToken { fingerprint: fingerprint(&certificate), secret: oxiray_ids::random() };
        Ok(Self::of(Issuer::new(params, key), certificate, token))
    }

    /// The authority that these are the parts of.
    ///
    /// # Errors
    /// Where they are none.
    pub fn from_parts(parts: &AuthorityParts) -> Result<Self, AuthorityError> {
        let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(&parts.key[..]))?;
        let certificate = CertificateDer::from(parts.certificate.clone());
        let secret = parts.secret[..].try_into().map_err(|_| AuthorityError::Secret)?;
        let token = JoinToken { fingerprint: fingerprint(&certificate), secret };
        Ok(Self::of(Issuer::new(params(), key), certificate, token))
    }

    fn of(issuer: Issuer<'static, KeyPair>, certificate: CertificateDer<'static>, token: JoinToken) -> Self {
        Self { clock: ClusterClock::of_machine(), lifetime: LIFETIME, issuer, certificate, token }
    }

    /// For how long the certificates that it makes from here on are valid.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// One whose clock shows another time.
    #[cfg(test)]
    pub(crate) fn at(mut self, shift: impl Fn(Duration) -> Duration) -> Self {
        self.clock = ClusterClock::set(shift(self.clock.now()));
        self
    }

    /// All that it is made of.
    pub fn to_parts(&self) -> AuthorityParts {
        let key = self.issuer.key().serialize_der();
        AuthorityParts { certificate: self.certificate.to_vec(), key, secret: self.token.secret.to_vec() }
    }

    /// What lets a node in that has no other token: the one that is as old as the authority.
    pub fn token(&self) -> &JoinToken {
        &self.token
    }

    /// The credentials of the head itself; `protocol` names the version of what the cluster speaks.
    ///
    /// # Errors
    /// Where the random source or the generator fails.
    pub fn head_credentials(&self, node: NodeId, protocol: &[u8]) -> Result<Credentials, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let (certificate, now) = self.sign(vec![name_of(node), HEAD_NAME.to_owned()], &key)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let identity = Identity { authority: self.certificate.clone(), certificate, key };
        Ok(Credentials::new(identity, protocol, ClusterClock::set(now), self.lifetime)?)
    }

    /// The certificate of a node that has this key.
    ///
    /// # Errors
    /// Where the key has not the length of one, or the generator fails.
    pub fn certify(&self, node: NodeId, public_key: &[u8]) -> Result<Certified, AuthorityError> {
        let key = PublicKey(public_key.try_into().map_err(|_| AuthorityError::Key)?);
        let (certificate, now) = self.sign(vec![name_of(node)], &key)?;
        let lifetime_s = u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX);
        Ok(Certified { certificate: certificate.to_vec(), now_s: now.as_secs(), lifetime_s })
    }

    /// A certificate, and when it was made.
    fn sign(
        &self,
        names: Vec<String>,
        key: &impl PublicKeyData,
    ) -> Result<(CertificateDer<'static>, Duration), AuthorityError> {
        let mut params = CertificateParams::new(names)?;
        let (now, beginning) = (self.clock.now(), rcgen::date_time_ymd(1970, 1, 1));
        params.not_before = beginning + now.saturating_sub(BACKDATED);
        params.not_after = beginning + now + self.lifetime;
        params.distinguished_name.push(DnType::CommonName, "oxiray node");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Ok((params.signed_by(key, &self.issuer)?.der().clone(), now))
    }
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "oxiray cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// A node's key as the node sent it. One that is no point of the curve makes a certificate that nobody can use.
struct PublicKey([u8; PUBLIC_KEY_BYTES]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// What a token pins.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; PART_BYTES] {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_comes_back_from_its_text() {
        let made = Authority::make().expect("an authority");
        let parts = made.to_parts();
        let text = format!("{}\n", parts.to_text());
        let read = AuthorityParts::parse(&text).expect("its text");
        assert!(read == parts);
        let again = Authority::from_parts(&read).expect("an authority");
        assert_eq!(again.token().to_text(), made.token().to_text());
        assert_eq!(format!("{read:?}"), "AuthorityParts(…)");
        let cut = &text[..text.len() - 2];
        for wrong in ["", "oxa1", "oxa1.00.11", "oxr1.00.11.22", "oxa1.00.11.2g", "oxa1.00.11.22.33", cut] {
            assert!(AuthorityParts::parse(wrong).is_err());
        }
    }
}
