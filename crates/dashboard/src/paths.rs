//! Paths of requests, and the patterns that they are of.
//!
//! A path's parts in braces are what the request names. They are decoded, and are one part each: what would be more, or another
//! folder, is no part.

/// What the path names where it is of that pattern.
pub(crate) fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut parts, mut named) = (path.split('/'), Vec::new());
    for wanted in pattern.split('/') {
        let part = parts.next()?;
        match wanted {
            "{}" => named.push(decode(part).filter(|part| is_one_part(part))?),
            _ if wanted == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(named)
}

fn is_one_part(part: &str) -> bool {
    !["", ".", ".."].contains(&part) && !part.chars().any(|letter| letter == '/' || letter.is_control())
}

/// A text without its percent signs; `None` where it is none.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, others @ ..] = others else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(*high)? << 4 | digit(*low)?) as u8);
        rest = others;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_what_is_in_the_braces() {
        let named = |path: &str| matched("/api/jobs/{}/logs", path);
        assert_eq!(named("/api/jobs/a%20b/logs"), Some(vec!["a b".to_owned()]));
        for other in [
            "/api/jobs/a",
            "/api/jobs/a/logs/",
            "/api/jobs//logs",
            "/api/jobs/%2e%2e/logs",
            "/api/jobs/../logs",
            "/api/jobs/a%2Fb/logs",
            "/api/jobs/a%00/logs",
            "/api/jobs/%zz/logs",
            "/api/jobs/%ff/logs",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }
}
