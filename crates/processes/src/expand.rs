//! Variables within the values of others.

/// `${NAME}` and `$NAME` stand for what this process has. Where it has no such variable, `${NAME}` is empty, and `$NAME`
/// stays as it is, as in Ray.
pub fn expanded(value: &str) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let braced =
            behind.strip_prefix('{').and_then(|inner| inner.split_once('}')).map(|(name, _)| (name, name.len() + 3));
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let plain = behind.find(|character| !is_word(character)).unwrap_or(behind.len());
        let (name, bytes) = braced.unwrap_or((&behind[..plain], plain + 1));
        let known = if name.is_empty() { None } else { std::env::var(name).ok() };
        let unknown = if braced.is_some() { "" } else { &rest[at..at + bytes] };
        text.push_str(known.as_deref().unwrap_or(unknown));
        rest = &rest[at + bytes..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::expanded;

    #[test]
    fn variables_are_expanded_as_in_ray() {
        let home = std::env::var("HOME").unwrap_or_default();
        for (value, expected) in [
            ("plain", "plain".to_owned()),
            ("${HOME}:more", format!("{home}:more")),
            ("a$HOME/b", format!("a{home}/b")),
            ("$", "$".to_owned()),
            ("${HOME", "${HOME".to_owned()),
            ("${OXIRAY_NO_SUCH}x$OXIRAY_NO_SUCH", "x$OXIRAY_NO_SUCH".to_owned()),
        ] {
            assert_eq!(expanded(value), expected, "{value}");
        }
    }
}
