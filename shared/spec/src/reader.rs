//! Reads the fields of one object by the table in [`crate::fields`].
//!
//! Promises: whatever is wrong becomes one finding and reading goes on, so that every error is seen at once; `null`
//! is the same as absent.

use std::fmt::Display;
use std::ops::RangeInclusive;

use tidegate_types::{TimestampMillis, parse_period_millis};

use crate::document::{Content, Entry, Node, join};
use crate::fields::{Effect, Section, sections};
use crate::issue::Findings;
use crate::suggest::{did_you_mean, shown};

/// One object of the document.
pub(crate) struct Reader<'d> {
    pub(crate) path: String,
    pub(crate) at: usize,
    entries: Vec<&'d Entry>,
}

impl<'d> Reader<'d> {
    /// Checks every field of the object against the section. `None` when it is no object.
    pub(crate) fn open(
        node: &'d Node,
        path: &str,
        section: &Section,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        let Content::Object(all) = &node.content else {
            findings.error(node.at, path, format!("must be an object, not {}", node.kind()));
            return None;
        };
        let mut entries = Vec::new();
        for entry in all {
            let place = join(path, &entry.name);
            let Some(field) = section.field(&entry.name) else {
                findings.error(entry.at, place, unknown_field(&entry.name, section));
                continue;
            };
            if entry.value.is_null() {
                continue;
            }
            match field.effect {
                Effect::Yes => entries.push(entry),
                Effect::Note => findings.warning(
                    entry.at,
                    place,
                    format!(
                        "`{}` is known and has no effect here: {}",
                        entry.name, field.meaning
                    ),
                ),
                Effect::Later(harmless) if harmless(&entry.value.to_value()) => {}
                Effect::Later(_) => {
                    findings.error(entry.at, place, not_supported_yet(&format!("`{}`", entry.name)));
                }
            }
        }
        Some(Self {
            path: path.to_owned(),
            at: node.at,
            entries,
        })
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&'d Entry> {
        self.entries
            .iter()
            .rev()
            .find(|entry| entry.name == name)
            .copied()
    }
    pub(crate) fn node(&self, name: &str) -> Option<&'d Node> {
        self.entry(name).map(|entry| &entry.value)
    }
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }
    pub(crate) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// An error at a field's value, or at the object when the field is absent.
    pub(crate) fn error(&self, name: &str, message: impl Display, findings: &mut Findings<'_>) {
        let at = self.node(name).map_or(self.at, |node| node.at);
        findings.error(at, self.path_of(name), message.to_string());
    }

    pub(crate) fn warning(&self, name: &str, message: impl Display, findings: &mut Findings<'_>) {
        let at = self.node(name).map_or(self.at, |node| node.at);
        findings.warning(at, self.path_of(name), message.to_string());
    }

    /// A text that is not empty.
    pub(crate) fn text(&self, name: &str, findings: &mut Findings<'_>) -> Option<&'d str> {
        let node = self.node(name)?;
        match node.text() {
            Some("") => {
                self.error(name, "must not be empty", findings);
                None
            }
            Some(text) => Some(text),
            None => {
                self.error(name, format!("must be a text, not {}", node.kind()), findings);
                None
            }
        }
    }

    /// A text that has to be there.
    pub(crate) fn required_text(&self, name: &str, findings: &mut Findings<'_>) -> Option<&'d str> {
        if !self.has(name) {
            self.error(name, "is missing", findings);
            return None;
        }
        self.text(name, findings)
    }

    /// True or false, also as text.
    pub(crate) fn flag(&self, name: &str, default: bool, findings: &mut Findings<'_>) -> bool {
        let Some(node) = self.node(name) else {
            return default;
        };
        match &node.content {
            Content::Bool(value) => return *value,
            Content::Text(text) if text.eq_ignore_ascii_case("true") => return true,
            Content::Text(text) if text.eq_ignore_ascii_case("false") => return false,
            Content::Text(text) => {
                self.error(
                    name,
                    format!("must be true or false, not {}", shown(text)),
                    findings,
                );
            }
            _ => self.error(
                name,
                format!("must be true or false, not {}", node.kind()),
                findings,
            ),
        }
        default
    }

    /// A whole number in a range, also as text (`"100000"`) or with a zero fraction (`1e5`).
    pub(crate) fn integer(
        &self,
        name: &str,
        range: RangeInclusive<i64>,
        findings: &mut Findings<'_>,
    ) -> Option<i64> {
        let node = self.node(name)?;
        let (value, given) = match &node.content {
            Content::Number(text) => (whole_number(text), text.clone()),
            Content::Text(text) => (whole_number(text.trim()), shown(text)),
            _ => (None, node.kind().to_owned()),
        };
        match value {
            Some(value) if range.contains(&value) => return Some(value),
            Some(value) if value < *range.start() => {
                self.error(
                    name,
                    format!("must be at least {}, not {value}", range.start()),
                    findings,
                );
            }
            Some(value) => self.error(
                name,
                format!("must be at most {}, not {value}", range.end()),
                findings,
            ),
            None => self.error(name, format!("must be a whole number, not {given}"), findings),
        }
        None
    }

    /// A whole number of at least `least`, as unsigned.
    pub(crate) fn count(&self, name: &str, least: i64, default: u64, findings: &mut Findings<'_>) -> u64 {
        self.integer(name, least..=i64::MAX, findings)
            .map_or(default, i64::unsigned_abs)
    }

    /// A whole number of at least `least` that fits in 32 bits.
    pub(crate) fn small_count(
        &self,
        name: &str,
        least: i64,
        default: u32,
        findings: &mut Findings<'_>,
    ) -> u32 {
        self.integer(name, least..=i64::from(i32::MAX), findings)
            .and_then(|value| u32::try_from(value).ok())
            .unwrap_or(default)
    }

    /// An ISO-8601 period of at least `least` milliseconds.
    pub(crate) fn period(&self, name: &str, least: u64, findings: &mut Findings<'_>) -> Option<u64> {
        let node = self.node(name)?;
        let Some(text) = node.text() else {
            let message = format!("must be an ISO-8601 period such as \"PT1H\", not {}", node.kind());
            self.error(name, message, findings);
            return None;
        };
        match parse_period_millis(text) {
            Ok(millis) if millis >= least => Some(millis),
            Ok(_) if least == 1 => {
                self.error(
                    name,
                    format!("must be longer than zero, not {}", shown(text)),
                    findings,
                );
                None
            }
            Ok(_) => {
                let least = tidegate_types::format_period_millis(least);
                self.error(
                    name,
                    format!("must be at least {least}, not {}", shown(text)),
                    findings,
                );
                None
            }
            Err(error) => {
                self.error(name, error, findings);
                None
            }
        }
    }

    /// A time, as ISO-8601 text or as milliseconds.
    pub(crate) fn time(&self, name: &str, findings: &mut Findings<'_>) -> Option<TimestampMillis> {
        let node = self.node(name)?;
        let time = match &node.content {
            Content::Text(text) => text.parse().ok(),
            Content::Number(text) => whole_number(text).map(TimestampMillis),
            _ => None,
        };
        match time {
            Some(time) if time.is_in_range() => return Some(time),
            Some(_) => self.error(name, "lies outside the years -9998 to 9999", findings),
            None => self.error(
                name,
                "must be a time: ISO-8601 such as \"2024-01-01T00:00:00Z\", or milliseconds since 1970",
                findings,
            ),
        }
        None
    }

    /// The items of a list, each with its path.
    pub(crate) fn items(&self, name: &str, findings: &mut Findings<'_>) -> Vec<(String, &'d Node)> {
        let Some(node) = self.node(name) else {
            return Vec::new();
        };
        let Content::List(items) = &node.content else {
            self.error(name, format!("must be a list, not {}", node.kind()), findings);
            return Vec::new();
        };
        let path = self.path_of(name);
        items
            .iter()
            .enumerate()
            .map(|(index, item)| (format!("{path}[{index}]"), item))
            .collect()
    }

    /// A list of texts.
    pub(crate) fn texts(&self, name: &str, findings: &mut Findings<'_>) -> Vec<(String, &'d Node, &'d str)> {
        let mut texts = Vec::new();
        for (path, item) in self.items(name, findings) {
            match item.text() {
                Some(text) if !text.is_empty() => texts.push((path, item, text)),
                Some(_) => findings.error(item.at, path, "must not be empty"),
                None => findings.error(item.at, path, format!("must be a text, not {}", item.kind())),
            }
        }
        texts
    }

    /// One of some words, in any case; `not_yet` are words that are known and refused.
    pub(crate) fn word<T: Copy>(
        &self,
        name: &str,
        words: &[(&'static str, T)],
        not_yet: &[&str],
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        let text = self.text(name, findings)?;
        match pick(text, words, not_yet) {
            Ok(value) => Some(value),
            Err(message) => {
                self.error(name, message, findings);
                None
            }
        }
    }
}

/// Finds a word in any case, or says what is wrong with it.
pub(crate) fn pick<T: Copy>(text: &str, words: &[(&'static str, T)], not_yet: &[&str]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        return Ok(*value);
    }
    if let Some(word) = not_yet.iter().find(|word| word.eq_ignore_ascii_case(text)) {
        return Err(not_supported_yet(&format!("`{word}`")));
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let hint = did_you_mean(text, known.iter().copied().chain(not_yet.iter().copied()));
    let choices = if hint.is_empty() {
        format!(" (known: {})", known.join(", "))
    } else {
        hint
    };
    Err(format!("{} is unknown{choices}", shown(text)))
}

pub(crate) fn not_supported_yet(what: &str) -> String {
    format!("{what} is known but not supported yet in this release; leave it out")
}

fn unknown_field(name: &str, section: &Section) -> String {
    let hint = did_you_mean(name, section.names());
    if !hint.is_empty() {
        return format!("unknown field{hint}");
    }
    // A field that stands in the wrong object.
    let home = sections().iter().find(|other| {
        ["dataSchema", "ioConfig", "tuningConfig"].contains(&other.path)
            && other.path != section.path
            && other.field(name).is_some()
            && name != "type"
    });
    match home {
        Some(home) => format!("unknown field here; it belongs into `{}`", home.path),
        None => "unknown field".to_owned(),
    }
}

/// A whole number that fits in 64 bits; `1e6` and `5.0` are whole.
fn whole_number(text: &str) -> Option<i64> {
    if let Ok(value) = text.parse::<i64>() {
        // `+5` is no number in JSON, and should not be one in a text.
        return (!text.starts_with('+')).then_some(value);
    }
    let is_decimal = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let value = is_decimal.then(|| text.parse::<f64>().ok()).flatten()?;
    // Beyond 2^53 a float does not say which number was meant.
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact_or_refused() {
        for (text, value) in [
            ("5", 5),
            ("-5", -5),
            ("5.0", 5),
            ("1e6", 1_000_000),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(whole_number(text), Some(value), "{text}");
        }
        for text in [
            "",
            "+5",
            "5.5",
            "1e300",
            "9223372036854775808",
            "0x10",
            "inf",
            "NaN",
            " 5",
            "5a",
        ] {
            assert_eq!(whole_number(text), None, "{text}");
        }
    }
}
