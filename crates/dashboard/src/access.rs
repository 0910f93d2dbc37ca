//! The secrets that open the door: those of the environment, or those that lie in the session's directory.

use anyhow::{Context as _, bail};
use oxiray_network::porch::{Keys, Right, new_secret};
use oxiray_wire::session::{HTTP_TOKEN, HTTP_TOKEN_READ};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The longest token that is read from a file, in bytes.
const TOKEN_BYTES_MAX: usize = 4096;

/// Adds the token that opens everything, and the one that reads only.
pub(crate) fn add_tokens(keys: &Keys, session: &Path) -> anyhow::Result<()> {
    let whole = match oxiray_visitor::http_token(|name| std::env::var(name).ok())? {
        Some(token) => token,
        None => kept(&session.join(HTTP_TOKEN))?,
    };
    keys.add(&whole, Right::All)?;
    keys.add(&kept(&session.join(HTTP_TOKEN_READ))?, Right::Read)?;
    Ok(())
}

/// The token of a file of the session, which is made where there is none.
fn kept(path: &Path) -> anyhow::Result<String> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            let token = new_secret()?;
            file.write_all(token.as_bytes())?;
            Ok(token)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
            if text.len() > TOKEN_BYTES_MAX {
                bail!("{} is no token: remove it, and another is made", path.display());
            }
            Ok(text.trim().to_owned())
        }
        Err(error) => Err(error).with_context(|| format!("{} cannot be made", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_made_once_and_is_its_owners() {
        let folder = std::env::temp_dir().join(format!("oxiray-access-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let own = folder.join("own");
        let made = kept(&own).expect("made");
        assert_eq!((made.len(), kept(&own).expect("read")), (64, made));
        assert_eq!(fs::metadata(&own).expect("it is there").permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
