//! The token by which a program is known over HTTP, as Ray's programs read it.

use std::io;

/// What the environment says; nothing where it says nothing.
///
/// # Errors
/// Where the file that it names cannot be read.
pub fn http_token(variable: impl Fn(&str) -> Option<String>) -> io::Result<Option<String>> {
    let said = |name: &str| variable(name).filter(|text| !text.is_empty());
    if let Some(token) = said("RAY_AUTH_TOKEN") {
        return Ok(Some(token.trim().to_owned()));
    }
    let Some(path) = said("RAY_AUTH_TOKEN_PATH") else { return Ok(None) };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("RAY_AUTH_TOKEN_PATH={path}: {error}"));
    let text = std::fs::read_to_string(&path).map_err(named)?;
    Ok(Some(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_itself_wins_over_the_file_with_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, " from-a-file \n").expect("written");
        let path = file.display().to_string();
        let said = |token: &'static str| {
            let path = path.clone();
            move |name: &str| Some(if name == "RAY_AUTH_TOKEN" { token.to_owned() } else { path.clone() })
        };
        assert_eq!(http_token(said("direct")).expect("read").as_deref(), Some("direct"));
        assert_eq!(http_token(said("")).expect("read").as_deref(), Some("from-a-file"));
        assert_eq!(http_token(|_| None).expect("nothing is said"), None);
        let wrong = http_token(|name| (name == "RAY_AUTH_TOKEN_PATH").then(|| "/nowhere".to_owned()));
        assert!(wrong.expect_err("no file").to_string().contains("RAY_AUTH_TOKEN_PATH=/nowhere"));
    }
}
