//! Patterns of names, as Python's `fnmatch` reads them: `*`, `?`, `[abc]`, `[a-c]`, `[!abc]`.

/// Whether a name fits a pattern; an empty one fits any.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    pattern.is_empty() || matches(&pattern, &name)
}

/// The last `*` is tried on ever more letters, which takes no longer than the product of both lengths.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star = None;
    while read < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('[') => class(&pattern[at..], name[read]),
            Some(letter) => (*letter == name[read]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(step), _) => (at, read) = (at + step, read + 1),
            (None, Some((begin, skipped))) => {
                star = Some((begin, skipped + 1));
                (at, read) = (begin + 1, skipped + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// How many letters of the pattern a class takes that has this letter; one that does not end is a bracket.
fn class(pattern: &[char], letter: char) -> Option<usize> {
    let is_inverted = pattern.get(1) == Some(&'!');
    let begin = 1 + usize::from(is_inverted);
    // A bracket that closes stands for itself at the beginning.
    let Some(end) = pattern.iter().skip(begin + 1).position(|one| *one == ']').map(|at| at + begin + 1) else {
        return (letter == '[').then_some(1);
    };
    let mut has = false;
    let mut at = begin;
    while at < end {
        if at + 2 < end && pattern[at + 1] == '-' {
            has |= (pattern[at]..=pattern[at + 2]).contains(&letter);
            at += 3;
        } else {
            has |= pattern[at] == letter;
            at += 1;
        }
    }
    (has != is_inverted).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_as_in_python() {
        for (pattern, name, expected) in [
            ("", "any", true),
            ("*.err", "a.err", true),
            ("*.err", "a.err.1", false),
            ("worker-*-12.*", "worker-a-b-12.out", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[a", "[a", true),
            ("**a**", "bab", true),
            ("*a*a*a*b", &"a".repeat(40), false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
