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
    let whole = match given(|name| std::env::var(name).ok())? {
        Some(token) => token,
        None => kept(&session.join(HTTP_TOKEN))?,
    };
    keys.add(&whole, Right::All)?;
    keys.add(&kept(&session.join(HTTP_TOKEN_READ))?, Right::Read)?;
    Ok(())
}

/// The token that the environment says, as Ray's programs read it.
fn given(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<String>> {
    let said = |name: &str| variable(name).filter(|text| !text.is_empty());
    if let Some(token) = said("RAY_AUTH_TOKEN") {
        return Ok(Some(token.trim().to_owned()));
    }
    let Some(path) = said("RAY_AUTH_TOKEN_PATH") else { return Ok(None) };
    let text = fs::read_to_string(&path).with_context(|| format!("RAY_AUTH_TOKEN_PATH={path} cannot be read"))?;
    Ok(Some(text.trim().to_owned()))
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

    #[test]
    fn the_environment_comes_first_and_a_file_is_made_once() {
        let folder = std::env::temp_dir().join(format!("oxiray-access-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("given");
        fs::write(&file, " from-a-file-1234 \n").expect("written");
        let path = file.display().to_string();
        let said = |token: &'static str| {
            let path = path.clone();
            move |name: &str| match name {
                "RAY_AUTH_TOKEN" => Some(token.to_owned()),
                _ => Some(path.clone()),
            }
        };
        assert_eq!(given(said("direct")).expect("read").as_deref(), Some("direct"));
        assert_eq!(given(said("")).expect("read").as_deref(), Some("from-a-file-1234"));
        assert_eq!(given(|_| None).expect("nothing is said"), None);
        let own = folder.join("own");
        let made = kept(&own).expect("made");
        assert_eq!((made.len(), kept(&own).expect("read")), (64, made));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
