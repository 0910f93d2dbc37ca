//! The file with a cluster's authority, where a head is not to make one of its own.

use oxiray_network::{Authority, AuthorityParts};
use std::path::{Path, PathBuf};

/// The authority that was given cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the cluster's authority cannot be read from {}: {why}", path.display())]
pub struct AuthorityFault {
    path: PathBuf,
    why: String,
}

/// The authority that whoever started the head has made.
pub(crate) fn read(path: &Path) -> Result<Authority, AuthorityFault> {
    let fault = |why: String| AuthorityFault { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let parts = AuthorityParts::parse(&text).map_err(|error| fault(error.to_string()))?;
    Authority::from_parts(&parts).map_err(|error| fault(error.to_string()))
}
