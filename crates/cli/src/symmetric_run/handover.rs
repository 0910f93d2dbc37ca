//! How the head's address and token get to the other nodes: by `sbcast`, which copies a file to each node of a Slurm job,
//! or by a file that all nodes see.

use anyhow::{Context as _, bail};
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

/// What ends a file that is whole.
const END: &str = "end of handover";
/// No address and no token is longer.
const BYTES_MAX: u64 = 16 << 10;

/// The way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Handover {
    /// There is one node.
    None,
    /// `sbcast` puts it on the disk of each node of the job, for the step of this name.
    Broadcast(String),
    /// A file that all nodes see.
    SharedFile(PathBuf),
}

/// What is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) address: String,
    pub(super) token: String,
}

/// What was given, for as long as it is needed.
#[derive(Debug)]
pub(super) struct Gift(PathBuf);

impl Drop for Gift {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl fmt::Display for Handover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.write_str("there is one node"),
            Self::Broadcast(_) => write!(formatter, "by sbcast, to {}", self.path().display()),
            Self::SharedFile(path) => write!(formatter, "in the file {}", path.display()),
        }
    }
}

impl Handover {
    /// Where it lies on a node.
    fn path(&self) -> PathBuf {
        match self {
            Self::None => PathBuf::new(),
            Self::Broadcast(step) => {
                std::env::temp_dir().join(format!("oxiray-step-{}-{step}", rustix::process::geteuid().as_raw()))
            }
            Self::SharedFile(path) => path.clone(),
        }
    }

    /// Hands it to the other nodes.
    pub(super) fn give(&self, address: &str, token: &str) -> anyhow::Result<Gift> {
        let text = format!("{address}\n{token}\n{END}\n");
        let path = self.path();
        match self {
            Self::None => {}
            Self::SharedFile(_) => put(&path, &text)?,
            Self::Broadcast(_) => {
                let beside = path.with_extension("new");
                let gift = Gift(beside.clone());
                put(&beside, &text)?;
                broadcast(&beside, &path)?;
                drop(gift);
            }
        }
        Ok(Gift(path))
    }

    /// What was handed over; nothing where it is not whole yet.
    pub(super) fn take(&self, expected: Option<SocketAddr>) -> anyhow::Result<Option<Given>> {
        let path = self.path();
        let file = match rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(opened) => File::from(opened),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => bail!("{} cannot be read: {error}", path.display()),
        };
        let found = file.metadata()?;
        // SYMMETRIC-2: whoever could write here could have this node join a cluster of theirs.
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            bail!("{} is not a file of this user that nobody else may read: remove it", path.display());
        }
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        let mut lines = text.lines();
        let (Some(address), Some(token), Some(END)) = (lines.next(), lines.next(), lines.next()) else {
            return Ok(None);
        };
        // One that an earlier run left, with the head at another address, is not for this one.
        let is_expected = expected.is_none_or(|expected| address.parse() == Ok(expected));
        Ok(is_expected.then(|| Given { address: address.to_owned(), token: token.to_owned() }))
    }
}

/// Writes a file that only this user may read, under another name first.
fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = path.file_name().context("--token-file names no file")?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let written = rustix::fs::open(&beside, flags, Mode::RUSR | Mode::WUSR)
        .map_err(std::io::Error::from)
        .and_then(|opened| File::from(opened).write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.with_context(|| format!("{} cannot be written", path.display()))
}

fn broadcast(file: &Path, to: &Path) -> anyhow::Result<()> {
    let told = Command::new("sbcast")
        .args(["--force", "--preserve"])
        .args([file, to])
        .stdin(Stdio::null())
        .output()
        .context("Slurm's `sbcast` cannot be run, which hands the token to the other nodes: install it, or say with --token-file=FILE a file that all nodes see")?;
    if !told.status.success() {
        bail!(
            "Slurm's `sbcast` could not hand the token to the other nodes: {}; say with --token-file=FILE a file that all nodes see",
            String::from_utf8_lossy(&told.stderr).trim()
        );
    }
    Ok(())
}

/// The token in a file of its own, for as long as that lives.
pub(super) fn private_file(token: &str) -> anyhow::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("oxiray-token-").tempfile().context("no file for the token")?;
    file.write_all(token.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_shared_file_hands_over_address_and_token_and_goes_with_its_giver() {
        let folder = tempfile::tempdir().unwrap();
        let way = Handover::SharedFile(folder.path().join("token"));
        assert_eq!(way.take(None).unwrap(), None);
        let gift = way.give("10.0.0.1:6379", "oxr1.a.b").unwrap();
        let given = Given { address: "10.0.0.1:6379".to_owned(), token: "oxr1.a.b".to_owned() };
        assert_eq!(way.take(None).unwrap(), Some(given.clone()));
        assert_eq!(way.take(Some("10.0.0.1:6379".parse().unwrap())).unwrap(), Some(given));
        assert_eq!(way.take(Some("10.0.0.2:6379".parse().unwrap())).unwrap(), None);
        drop(gift);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_whole_is_waited_for_and_what_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let way = Handover::SharedFile(path.clone());
        write(&path, "10.0.0.1:6379\noxr1.a").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(way.take(None).unwrap(), None);
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(way.take(None).unwrap_err().to_string().contains("nobody else may read"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Handover::SharedFile(link).take(None).is_err());
    }
}
