//! The cluster's own certificate authority. It lives in the head, and ends with the cluster.
//!
//! - AUTHORITY-1: the certificate of a node is valid for a day, by the head's clock, and is renewed when half of that is
//!   over. It is valid for the hour before, too, since the next head's clock may be behind.

use crate::clock::ClusterClock;
use crate::tls::{Credentials, Identity};
use crate::token::{JoinToken, PART_BYTES};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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
/// For how long that of a site is valid, which is made anew by each head that starts, and by one that lives for long.
const SITE_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// For how long before its making it is valid, too.
const BACKDATED: Duration = Duration::from_secs(3600);
/// Bytes of an uncompressed point on the curve P-256.
pub(crate) const PUBLIC_KEY_BYTES: usize = 65;

/// What names end with that only certificates of nodes have.
const OWN_SUFFIX: &str = ".oxiray";
/// Characters of a line of PEM.
const PEM_LINE: usize = 64;
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
    /// A site was to be known by the name of a node.
    #[error("a certificate of `{0}` would be one of the cluster's nodes: names that end with {OWN_SUFFIX} are theirs")]
    Name(String),
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

/// What a site speaks TLS with that is no node, such as the dashboard; each as PEM.
pub struct SiteCertificate {
    /// Its certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
    /// The certificate of the authority, by which others verify it.
    pub authority: String,
    /// For how long it is valid.
    pub lifetime: Duration,
}

impl std::fmt::Debug for SiteCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SiteCertificate(…)")
    }
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

    /// What a site speaks TLS with that is asked by these names and addresses. Nobody is taken for a node by it.
    ///
    /// # Errors
    /// Where a name is one of nodes, or is none, or the generator fails.
    pub fn certify_site(&self, names: Vec<String>) -> Result<SiteCertificate, AuthorityError> {
        if let Some(name) = names.iter().find(|name| name.to_ascii_lowercase().ends_with(OWN_SUFFIX)) {
            return Err(AuthorityError::Name(name.clone()));
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(names)?;
        self.limit(&mut params, SITE_LIFETIME);
        params.distinguished_name.push(DnType::CommonName, "oxiray dashboard");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&key, &self.issuer)?;
        Ok(SiteCertificate {
            certificate: pem("CERTIFICATE", signed.der()),
            key: pem("PRIVATE KEY", &key.serialize_der()),
            authority: pem("CERTIFICATE", &self.certificate),
            lifetime: SITE_LIFETIME,
        })
    }

    /// Says when a certificate is valid, and what its key is for. Returns the time.
    fn limit(&self, params: &mut CertificateParams, lifetime: Duration) -> Duration {
        let (now, beginning) = (self.clock.now(), rcgen::date_time_ymd(1970, 1, 1));
        params.not_before = beginning + now.saturating_sub(BACKDATED);
        params.not_after = beginning + now + lifetime;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        now
    }

    /// A certificate, and when it was made.
    fn sign(
        &self,
        names: Vec<String>,
        key: &impl PublicKeyData,
    ) -> Result<(CertificateDer<'static>, Duration), AuthorityError> {
        let mut params = CertificateParams::new(names)?;
        let now = self.limit(&mut params, self.lifetime);
        params.distinguished_name.push(DnType::CommonName, "oxiray node");
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

/// Bytes as PEM.
fn pem(label: &str, der: &[u8]) -> String {
    let digits = STANDARD.encode(der);
    let lines: String = digits
        .as_bytes()
        .chunks(PEM_LINE)
        .flat_map(|line| line.iter().copied().chain([b'\n']))
        .map(char::from)
        .collect();
    format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
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

    #[test]
    fn a_site_is_known_by_its_names_and_is_no_node() {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
        use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

        let authority = Authority::make().expect("an authority");
        let names = ["10.0.0.1", "::1", "head.example"];
        let site = authority.certify_site(names.map(str::to_owned).to_vec()).expect("a certificate");
        let read = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        let (certificate, anchor) = (read(&site.certificate), read(&site.authority));
        let anchors = [anchor_from_trusted_cert(&anchor).expect("an authority's")];
        let parsed = EndEntityCert::try_from(&certificate).expect("a certificate");
        for (name, is_its) in names.iter().map(|name| (*name, true)).chain([("10.0.0.2", false), (HEAD_NAME, false)]) {
            let asked = ServerName::try_from(name).expect("a name");
            assert_eq!(parsed.verify_is_valid_for_subject_name(&asked).is_ok(), is_its, "{name}");
        }
        let verified = |usage, later: Duration| {
            let time = UnixTime::since_unix_epoch(authority.clock.now() + later);
            parsed.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], time, usage, None, None).is_ok()
        };
        assert!(verified(KeyUsage::server_auth(), Duration::ZERO));
        assert!(!verified(KeyUsage::client_auth(), Duration::ZERO), "nobody joins with it");
        assert!(!verified(KeyUsage::server_auth(), SITE_LIFETIME + Duration::from_secs(1)));
        assert!(crate::porch::PorchTls::from_pem(site.certificate.as_bytes(), site.key.as_bytes()).is_ok());
        for name in [HEAD_NAME.to_owned(), name_of(NodeId::default()), "HEAD.OXIRAY".to_owned()] {
            assert!(matches!(authority.certify_site(vec![name]), Err(AuthorityError::Name(_))));
        }
    }
}
