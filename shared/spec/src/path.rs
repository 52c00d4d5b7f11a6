//! Simple JSON paths of a flattenSpec: keys and indexes from the root.

use crate::model::PathStep;

/// Why an expression is no simple path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("the path names nothing; write the way from the root, e.g. $.address.city or $['a b'][0]")]
    Empty,
    #[error("the path is not complete or has something unexpected at character {0}")]
    Broken(usize),
    #[error(
        "{0} in a path is known but not supported yet in this release; only keys and indexes from the root are"
    )]
    NotSupportedYet(&'static str),
}

/// Reads `$.a.b['c'][0]`; a path without `$` begins at the root too.
pub(crate) fn parse_path(text: &str) -> Result<Vec<PathStep>, PathError> {
    let mut rest = text.trim();
    let whole = rest;
    let mut steps = Vec::new();
    if rest.is_empty() {
        return Err(PathError::Empty);
    }
    match rest.strip_prefix('$') {
        Some(tail) => rest = tail,
        None if rest.starts_with(['.', '[', '@']) => return Err(PathError::Broken(1)),
        None => {
            let (key, tail) = bare_key(rest, whole)?;
            steps.push(key);
            rest = tail;
        }
    }
    while !rest.is_empty() {
        let (step, tail) = if rest.starts_with("..") {
            return Err(PathError::NotSupportedYet("`..`"));
        } else if let Some(tail) = rest.strip_prefix('.') {
            bare_key(tail, whole)?
        } else if let Some(tail) = rest.strip_prefix('[') {
            bracket(tail, whole)?
        } else {
            return Err(PathError::Broken(position(whole, rest)));
        };
        steps.push(step);
        rest = tail;
    }
    if steps.is_empty() {
        Err(PathError::Empty)
    } else {
        Ok(steps)
    }
}

/// The way that [`parse_path`] reads back as the same steps.
pub(crate) fn format_path(steps: &[PathStep]) -> String {
    let mut text = String::from("$");
    for step in steps {
        match step {
            PathStep::Index(index) => text += &format_index(*index),
            PathStep::Key(key) if is_plain(key) => {
                text.push('.');
                text += key;
            }
            PathStep::Key(key) => {
                text += "['";
                text += &key.replace('\\', "\\\\").replace('\'', "\\'");
                text += "']";
            }
        }
    }
    text
}

fn format_index(index: usize) -> String {
    format!("[{index}]")
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_' || letter == '-')
}

/// The character at which `rest` begins, from 1.
fn position(whole: &str, rest: &str) -> usize {
    whole.chars().count() - rest.chars().count() + 1
}

/// A key up to the next `.` or `[`.
fn bare_key<'t>(text: &'t str, whole: &str) -> Result<(PathStep, &'t str), PathError> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    if key.is_empty() {
        return Err(PathError::Broken(position(whole, text)));
    }
    if key == "*" {
        return Err(PathError::NotSupportedYet("`*`"));
    }
    if key.contains('(') {
        return Err(PathError::NotSupportedYet("a function"));
    }
    if key.contains([']', '\'', '"', '?', '@', '$', ')']) {
        return Err(PathError::Broken(position(whole, text)));
    }
    Ok((PathStep::Key(key.to_owned()), rest))
}

/// What follows `[`: an index or a quoted key, and `]`.
fn bracket<'t>(text: &'t str, whole: &str) -> Result<(PathStep, &'t str), PathError> {
    let broken = |rest: &str| PathError::Broken(position(whole, rest));
    let inner = text.trim_start();
    let Some(first) = inner.chars().next() else {
        return Err(broken(inner));
    };
    let (step, rest) = match first {
        '\'' | '"' => {
            let (key, rest) = quoted_key(&inner[1..], first).ok_or_else(|| broken(inner))?;
            (PathStep::Key(key), rest)
        }
        '*' => return Err(PathError::NotSupportedYet("`*`")),
        '?' => return Err(PathError::NotSupportedYet("a filter")),
        '-' => return Err(PathError::NotSupportedYet("an index from the end")),
        '0'..='9' => {
            let end = inner
                .find(|letter: char| !letter.is_ascii_digit())
                .unwrap_or(inner.len());
            let index = inner[..end].parse().map_err(|_| broken(inner))?;
            (PathStep::Index(index), &inner[end..])
        }
        _ => return Err(broken(inner)),
    };
    let rest = rest.trim_start();
    match rest.chars().next() {
        Some(']') => Ok((step, &rest[1..])),
        Some(',' | ':') => Err(PathError::NotSupportedYet("a list or a range of indexes")),
        _ => Err(broken(rest)),
    }
}

/// A key up to its closing quote; a backslash takes the next character as it is.
fn quoted_key(text: &str, quote: char) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        if letter == quote {
            return Some((key, &text[at + 1..]));
        }
        key.push(if letter == '\\' { letters.next()?.1 } else { letter });
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> PathStep {
        PathStep::Key(text.to_owned())
    }

    #[test]
    fn keys_and_indexes_are_read() {
        for (text, steps) in [
            (
                "$.ship.address.city",
                vec![key("ship"), key("address"), key("city")],
            ),
            ("$.labels['source']", vec![key("labels"), key("source")]),
            (
                "$['a.b'][\"c d\"][0].e",
                vec![key("a.b"), key("c d"), PathStep::Index(0), key("e")],
            ),
            ("a.b", vec![key("a"), key("b")]),
            ("$.it['o\\'clock']", vec![key("it"), key("o'clock")]),
            ("$['']", vec![key("")]),
            ("$.ł-1[ 12 ]", vec![key("ł-1"), PathStep::Index(12)]),
        ] {
            assert_eq!(parse_path(text), Ok(steps), "{text}");
        }
    }

    #[test]
    fn what_goes_beyond_is_refused_by_its_name() {
        for (text, part) in [
            ("", "names nothing"),
            ("$", "names nothing"),
            ("$..a", "`..`"),
            ("$.*", "`*`"),
            ("$.a[*]", "`*`"),
            ("$.a[?(@.b)]", "a filter"),
            ("$.a[-1]", "from the end"),
            ("$.a[0,1]", "a list"),
            ("$.a[0:2]", "a list"),
            ("$.a['b','c']", "a list"),
            ("$.a.length()", "a function"),
            ("$.", "at character 3"),
            ("$a", "at character 2"),
            ("$.a[", "at character 5"),
            ("$.a['b", "at character 5"),
            ("$.a[0", "at character 6"),
            ("$.a[99999999999999999999]", "at character 5"),
            (".a", "at character 1"),
        ] {
            let message = parse_path(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}", pathlike in "[$.\\[\\]'a0*?\\\\ -]{0,20}") {
            let _ = parse_path(&text);
            let _ = parse_path(&pathlike);
        }

        #[test]
        fn written_steps_read_back(keys in prop::collection::vec(".{0,8}", 1..5), index: u16) {
            let mut steps: Vec<PathStep> = keys.into_iter().map(PathStep::Key).collect();
            steps.push(PathStep::Index(index.into()));
            prop_assert_eq!(parse_path(&format_path(&steps)), Ok(steps));
        }
    }
}
