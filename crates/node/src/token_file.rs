//! The file that carries a join token from a head to nodes of other machines, or standard input in its place.

use oxiray_network::{JoinToken, TokenError};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What stands for standard input where a file is named.
pub const STANDARD_INPUT: &str = "-";

/// What came from standard input. It comes once, and the token is needed again when the head was away.
static GIVEN: OnceLock<String> = OnceLock::new();

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
    if path == STANDARD_INPUT {
        return Ok(JoinToken::parse(given().map_err(TokenFault::Unread)?)?);
    }
    let file = File::open(path).map_err(TokenFault::Unread)?;
    let mode = file.metadata().map_err(TokenFault::Unread)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(TokenFault::Open(mode));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_LIMIT).read_to_string(&mut text).map_err(TokenFault::Unread)?;
    Ok(JoinToken::parse(&text)?)
}

/// Takes the token from standard input where `path` says so: before this process has children that need it, too.
pub(crate) fn take_given(path: Option<&Path>) {
    if path.is_some_and(|path| path == STANDARD_INPUT) {
        // Whoever needs the token tries again, and tells what is wrong.
        let _ = given();
    }
}

fn given() -> io::Result<&'static str> {
    if GIVEN.get().is_none() {
        let mut text = String::new();
        io::stdin().lock().take(FILE_BYTES_LIMIT).read_to_string(&mut text)?;
        return Ok(GIVEN.get_or_init(|| text));
    }
    Ok(GIVEN.get().map_or("", String::as_str))
}

/// The file for the token in a session's directory.
pub(crate) fn path_in(session: &Path) -> PathBuf {
    session.join("join-token")
}
