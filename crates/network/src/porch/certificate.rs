//! The certificate that a porch shows, which may be replaced while the porch is open.

use super::OpenError;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, Mutex, PoisonError};

/// What TLS is spoken with. Its copies show the same certificate.
#[derive(Debug, Clone)]
pub struct PorchTls {
    config: Arc<ServerConfig>,
    shown: Arc<Shown>,
}

/// What is shown to whoever comes next.
#[derive(Debug)]
struct Shown(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl PorchTls {
    /// With a chain of certificates and its key, both as PEM.
    ///
    /// # Errors
    /// Where they are none, or do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, OpenError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown = Arc::new(Shown(Mutex::new(read(certificates, key, &provider)?)));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&shown) as _;
        let config = Arc::new(builder.with_no_client_auth().with_cert_resolver(resolver));
        Ok(Self { config, shown })
    }

    /// Shows these to whoever comes from now on. Connections that are open go on as they began.
    ///
    /// # Errors
    /// Where they are none, or do not belong together: what was shown before is shown further.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), OpenError> {
        let read = read(certificates, key, self.config.crypto_provider())?;
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

fn read(certificates: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, OpenError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificates).collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(&error))?;
    Ok(Arc::new(CertifiedKey::from_der(chain, key, provider).map_err(|error| wrong(&error))?))
}

fn wrong(error: &dyn std::fmt::Display) -> OpenError {
    OpenError::Certificate(error.to_string())
}
