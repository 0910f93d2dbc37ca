//! TLS as the cluster uses it: version 1.3 only, certificates of the cluster's own authority only.
//!
//! The protocol negotiated (ALPN) carries the version of the wire, so that peers of another version part before either
//! has said anything.

use crate::authority::{HEAD_NAME, fingerprint, name_of, node_named};
use crate::clock::{ClusterClock, since_boot};
use crate::expectation::Way;
use crate::token::PART_BYTES;
use oxiray_ids::NodeId;
use oxiray_records::{Cipher, Secret};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, ConnectionTrafficSecrets, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

/// A certificate of an authority, and its key, which is not printed.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) authority: CertificateDer<'static>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivatePkcs8KeyDer<'static>,
}

/// What a process shows of itself to others of its cluster, and by what it knows them. The key is not printed.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub(crate) identity: Arc<Identity>,
    /// When they are to be renewed, and until when they are valid, as time since the machine was started.
    renew_at: Duration,
    until: Duration,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    giver: Arc<ClientConfig>,
}

/// By what a head knows a machine that was a node of its cluster: the last certificate, and its key, which is not printed.
#[derive(Debug, Clone)]
pub struct LastCertificate {
    pub(crate) identity: Arc<Identity>,
    /// Until when it is valid, as time since the machine was started.
    until: Duration,
}

impl LastCertificate {
    /// The authority's certificate, the node's, and its key, for a process of the same machine; and until when they are valid,
    /// as time since the machine was started, suspension included.
    pub fn to_parts(&self) -> ([Vec<u8>; 3], Duration) {
        let Identity { authority, certificate, key } = &*self.identity;
        ([authority.to_vec(), certificate.to_vec(), key.secret_pkcs8_der().to_vec()], self.until)
    }

    /// What [`LastCertificate::to_parts`] gave.
    pub fn from_parts([authority, certificate, key]: [Vec<u8>; 3], until: Duration) -> Self {
        let identity = Identity { authority: authority.into(), certificate: certificate.into(), key: key.into() };
        Self { identity: Arc::new(identity), until }
    }

    fn is_valid(&self) -> bool {
        since_boot() < self.until
    }
}

fn provider() -> Arc<CryptoProvider> {
    preferring(CipherSuite::TLS13_AES_128_GCM_SHA256)
}

/// Who dials names the ciphers in this order, and who is dialled takes the first. The cheapest is for most: objects are
/// large. Calls are many, so that theirs is the one whose keys are good for any number of records.
fn preferring(suite: CipherSuite) -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|known| known.suite() != suite);
    Arc::new(provider)
}

/// The keys of one direction, for who seals or opens its records itself.
pub(crate) fn secret_of((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Secret> {
    match &secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
            Secret::new(Cipher::Aes128Gcm, key.as_ref(), iv.as_ref(), sequence)
        }
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            Secret::new(Cipher::Aes256Gcm, key.as_ref(), iv.as_ref(), sequence)
        }
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Secret::new(Cipher::ChaCha20Poly1305, key.as_ref(), iv.as_ref(), sequence)
        }
        _ => Err(io::Error::new(ErrorKind::InvalidData, "TLS has agreed on keys of a kind that is not known")),
    }
}

fn roots_of(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

impl Credentials {
    /// Those that were made at the clock's time just now.
    pub(crate) fn new(
        identity: Identity,
        protocol: &[u8],
        clock: ClusterClock,
        lifetime: Duration,
    ) -> Result<Self, Error> {
        let Identity { authority, certificate, key } = &identity;
        let (roots, clock) = (roots_of(authority)?, Arc::new(clock));
        // The authority's own certificate goes along: a newcomer knows no more of it than its fingerprint.
        let chain = vec![certificate.clone(), authority.clone()];
        let peers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
            // A newcomer has none yet, and may say one thing only.
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let mut server = ServerConfig::builder_with_details(provider(), clock.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(peers)
            .with_single_cert(chain.clone(), key.clone_key().into())?;
        server.alpn_protocols = vec![protocol.to_vec()];
        // For streams whose records are sealed by others.
        server.enable_secret_extraction = true;
        let client = |provider| -> Result<_, Error> {
            let mut client = ClientConfig::builder_with_details(provider, clock.clone())
                .with_protocol_versions(&[&TLS13])?
                .with_root_certificates(roots.clone())
                .with_client_auth_cert(chain.clone(), key.clone_key().into())?;
            client.alpn_protocols = vec![protocol.to_vec()];
            client.enable_secret_extraction = true;
            Ok(Arc::new(client))
        };
        let (client, giver) = (client(provider())?, client(preferring(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256))?);
        let made = since_boot();
        let (renew_at, until) = (made + lifetime / 2, made + lifetime);
        Ok(Self { identity: Arc::new(identity), renew_at, until, server: Arc::new(server), client, giver })
    }

    /// When they are to be renewed, as time since the machine was started, suspension included.
    pub fn renew_at(&self) -> Duration {
        self.renew_at
    }

    /// By what the head knows this machine should it come again.
    pub fn last_certificate(&self) -> LastCertificate {
        LastCertificate { identity: self.identity.clone(), until: self.until }
    }

    pub(crate) fn accepting(&self) -> Result<rustls::Connection, Error> {
        let mut connection = rustls::ServerConnection::new(self.server.clone())?;
        connection.set_buffer_limit(None);
        Ok(connection.into())
    }

    pub(crate) fn dialing(&self, node: NodeId, way: &Way) -> Result<rustls::Connection, Error> {
        let client = if matches!(way, Way::Given) { &self.giver } else { &self.client };
        let mut connection = rustls::ClientConnection::new(client.clone(), server_name(name_of(node))?)?;
        connection.set_buffer_limit(None);
        Ok(connection.into())
    }
}

fn server_name(name: String) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name).map_err(|error| Error::General(error.to_string()))
}

/// The node whose certificate a peer has shown, and TLS has verified.
pub(crate) fn node_of(certificate: &CertificateDer<'_>) -> Option<NodeId> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    parsed.valid_dns_names().find_map(node_named)
}

/// The newcomer's side of its first connection: it knows the authority by its fingerprint only.
/// Where it was a node of the cluster, it shows that it still has its key.
pub(crate) fn joining(
    wanted: [u8; PART_BYTES],
    protocol: &[u8],
    before: Option<&LastCertificate>,
) -> Result<rustls::ClientConnection, Error> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { fingerprint: wanted, provider: provider() }));
    let mut config = match before.filter(|before| before.is_valid()) {
        Some(LastCertificate { identity, .. }) => {
            let chain = vec![identity.certificate.clone(), identity.authority.clone()];
            config.with_client_auth_cert(chain, identity.key.clone_key().into())?
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    // What is proven is bound to a connection of its own.
    config.resumption = rustls::client::Resumption::disabled();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), server_name(HEAD_NAME.to_owned())?)?;
    connection.set_buffer_limit(None);
    Ok(connection)
}

/// Accepts the head of the one cluster whose authority has the fingerprint (NETWORK-3).
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; PART_BYTES],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = chain.iter().find(|certificate| fingerprint(certificate) == self.fingerprint);
        let authority = authority.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let roots = roots_of(&authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(certificate, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is never spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
