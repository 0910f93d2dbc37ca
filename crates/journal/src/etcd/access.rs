//! By what etcd and a head know each other.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// The largest of these files.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where that is written. Everything may be left out: then it is spoken without TLS, and as nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdFiles {
    /// The certificates by which etcd's are verified, as PEM: it is spoken over TLS with them.
    pub authority: Option<PathBuf>,
    /// The certificate that is shown to etcd, as PEM, with those behind it.
    pub certificate: Option<PathBuf>,
    /// Its private key, as PEM.
    pub key: Option<PathBuf>,
    /// The user of etcd, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

/// Why nobody can speak to etcd with these files.
#[derive(Debug, thiserror::Error)]
pub enum AccessFault {
    /// It cannot be read.
    #[error("the file {} for etcd cannot be read: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is not what it is to be.
    #[error("the file {} for etcd has no {wanted}", path.display())]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What is sought in it.
        wanted: &'static str,
    },
    /// Others may read a secret.
    #[error("others may read {}, and whoever has it may speak to etcd: run `chmod 600 {}`", path.display(), path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// Something is of no use without something else.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// What is read from them. It is not printed.
#[derive(Clone, Default)]
pub struct EtcdAccess {
    pub(super) tls: Option<TlsConfig>,
    /// A name and a password.
    pub(super) user: Option<(String, String)>,
}

impl std::fmt::Debug for EtcdAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EtcdAccess(…)")
    }
}

impl EtcdAccess {
    /// Reads the files.
    ///
    /// # Errors
    /// Where one cannot be used, or another is missing.
    pub fn read(files: &EtcdFiles) -> Result<Self, AccessFault> {
        let shown = match (&files.certificate, &files.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(AccessFault::Incomplete("a certificate for etcd is of use with its key only")),
        };
        let tls = match &files.authority {
            None if shown.is_some() => {
                return Err(AccessFault::Incomplete(
                    "a certificate for etcd is of use with the authority only by which etcd's own is verified",
                ));
            }
            None if files.user.is_some() => {
                return Err(AccessFault::Incomplete(
                    "a password for etcd travels over TLS only: name the authority by which its certificate is verified",
                ));
            }
            None => None,
            Some(authority) => Some(tls(authority, shown)?),
        };
        let user = files.user.as_ref().map(|(name, file)| {
            let password = read_secret(file)?.trim_end_matches(['\r', '\n']).to_owned();
            Ok((name.clone(), password))
        });
        Ok(Self { tls, user: user.transpose()? })
    }
}

fn tls(authority: &Path, shown: Option<(&PathBuf, &PathBuf)>) -> Result<TlsConfig, AccessFault> {
    let client = match shown {
        None => None,
        Some((certificate, key)) => {
            let lacks = || AccessFault::Lacks { path: key.clone(), wanted: "private key in PEM" };
            let secret = PrivateKey::from_pem(read_secret(key)?.as_bytes()).map_err(|_| lacks())?;
            Some(ClientCert::new_with_certs(&certificates(certificate)?, secret))
        }
    };
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(certificates(authority)?)))
        .client_cert(client);
    Ok(config.build())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, AccessFault> {
    let text = read(path, false)?;
    let found: Vec<Certificate<'static>> = parse_pem(text.as_bytes())
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(AccessFault::Lacks { path: path.to_owned(), wanted: "certificate in PEM" });
    }
    Ok(found)
}

fn read_secret(path: &Path) -> Result<String, AccessFault> {
    read(path, true)
}

fn read(path: &Path, is_secret: bool) -> Result<String, AccessFault> {
    let system = |source| AccessFault::System { path: path.to_owned(), source };
    let file = File::open(path).map_err(system)?;
    if is_secret && file.metadata().map_err(system)?.mode() & 0o007 != 0 {
        return Err(AccessFault::Open { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(system)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn refusal(files: &EtcdFiles) -> String {
        EtcdAccess::read(files).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_is_of_no_use_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, "nothing\n").expect("written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            path
        };
        let (open, own) = (file("open", 0o644), file("own", 0o600));
        let none = EtcdFiles::default();
        assert!(EtcdAccess::read(&none).is_ok_and(|access| access.tls.is_none() && access.user.is_none()));
        let user = Some(("root".to_owned(), own.clone()));
        assert!(refusal(&EtcdFiles { user, ..none.clone() }).contains("travels over TLS only"));
        let authority = Some(open.clone());
        assert!(refusal(&EtcdFiles { authority, ..none.clone() }).contains("no certificate in PEM"));
        let half = EtcdFiles { certificate: Some(open.clone()), ..none.clone() };
        assert!(refusal(&half).contains("with its key only"));
        let unverified = EtcdFiles { key: Some(own.clone()), ..half };
        assert!(refusal(&unverified).contains("verified"));
        let readable = EtcdFiles { key: Some(open.clone()), authority: Some(open.clone()), ..unverified.clone() };
        assert!(refusal(&readable).contains("chmod 600"), "{}", refusal(&readable));
        let keyless = EtcdFiles { authority: Some(open), ..unverified };
        assert!(refusal(&keyless).contains("no private key in PEM"));
        let missing = EtcdFiles { authority: Some(folder.path().join("missing")), ..none };
        assert!(refusal(&missing).contains("cannot be read"));
    }
}
