//! The certificate that the dashboard speaks TLS with: read from its files at the start, and again whenever they are others.

use crate::log::say;
use crate::options::Options;
use anyhow::Context as _;
use oxiray_network::porch::PorchTls;
use std::convert::Infallible;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the files are looked at. Secrets of Kubernetes are replaced by links, of which no file system tells.
const PERIOD: Duration = Duration::from_secs(5);

/// By what a file is told from the one that was there before: its device and number, when it was changed, in seconds and the rest, and
/// its length.
type Stamp = Option<[i64; 5]>;

/// The files, and what was read of them.
#[derive(Debug)]
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    tls: PorchTls,
    /// The files that were read last, whether they were of use or not.
    seen: [Stamp; 2],
}

impl Certificate {
    /// Reads them; nothing where none are named.
    pub(crate) fn read(options: &Options) -> anyhow::Result<Option<Self>> {
        let (Some(certificate), Some(key)) = (options.tls_cert.clone(), options.tls_key.clone()) else {
            return Ok(None);
        };
        let seen = [stamp(&certificate), stamp(&key)];
        let (chain, secret) = (contents(&certificate)?, contents(&key)?);
        Ok(Some(Self { tls: PorchTls::from_pem(&chain, &secret)?, chain: certificate, key, seen }))
    }

    /// What doors show.
    pub(crate) fn tls(&self) -> PorchTls {
        self.tls.clone()
    }

    /// Looks at the files again and again.
    pub(crate) async fn keep(mut self) -> Infallible {
        loop {
            tokio::time::sleep(PERIOD).await;
            match self.look() {
                Some(Ok(())) => say("the certificate was replaced: another one is shown from now on"),
                Some(Err(error)) => {
                    say(&format!("the certificate cannot be replaced, and the last one is shown: {error:#}"));
                }
                None => {}
            }
        }
    }

    /// Shows what the files have now, where they are others than those that were read last.
    fn look(&mut self) -> Option<anyhow::Result<()>> {
        let now = [stamp(&self.chain), stamp(&self.key)];
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Some(self.replace())
    }

    fn replace(&self) -> anyhow::Result<()> {
        Ok(self.tls.replace(&contents(&self.chain)?, &contents(&self.key)?)?)
    }
}

fn stamp(path: &Path) -> Stamp {
    let of = std::fs::metadata(path).ok()?;
    Some([of.dev().cast_signed(), of.ino().cast_signed(), of.ctime(), of.ctime_nsec(), of.size().cast_signed()])
}

fn contents(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
}
