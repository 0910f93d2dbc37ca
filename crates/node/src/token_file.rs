//! The file that carries a join token from a head to nodes of other machines.

use oxiray_network::{JoinToken, TokenError};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The largest file that is read as a token.
const FILE_BYTES_LIMIT: u64 = 4096;

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFault {
    /// The file cannot be read.
    #[error("{0}")]
    Unread(#[source] io::Error),
    /// Others may read it, so that it may not be a secret any more.
    #[error(
        "others than its owner may read it (mode {0:o}): make it 0600, and have the cluster started anew where others may have"
    )]
    Open(u32),
    /// It is no token.
    #[error(transparent)]
    Form(#[from] TokenError),
}

/// Reads the token, which nobody but the file's owner may read.
pub(crate) fn read(path: &Path) -> Result<JoinToken, TokenFault> {
    let file = File::open(path).map_err(TokenFault::Unread)?;
    let mode = file.metadata().map_err(TokenFault::Unread)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(TokenFault::Open(mode));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_LIMIT).read_to_string(&mut text).map_err(TokenFault::Unread)?;
    Ok(JoinToken::parse(&text)?)
}

/// The file for the token in a session's directory.
pub(crate) fn path_in(session: &Path) -> PathBuf {
    session.join("join-token")
}
