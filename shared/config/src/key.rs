//! What is known about a key, and how its values are written.

use serde_json::Value;

/// One key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// `section.name`, or `name` for what has no section.
    pub name: &'static str,
    pub kind: Kind,
    pub default: Default,
    /// One or two sentences for an operator.
    pub doc: &'static str,
}

/// What a value is, and so how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A text that is never shown.
    Secret,
    /// `host:port` to bind, with a numeric host.
    Listen,
    /// `http://host:port` of another service.
    Address,
    /// One or more of them, separated by commas.
    Addresses,
    Path,
    /// `30s`, `5m`, `1h30m`, `500ms`, `PT30S`, or whole milliseconds.
    Duration,
    /// `512MiB`, `2GB`, or whole bytes.
    Size,
    /// A whole number, at least 1.
    Count,
    /// `true` or `false`.
    Flag,
    Choice(&'static [&'static str]),
    /// Some of these, separated by commas.
    Some(&'static [&'static str]),
}

/// What holds when nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    Is(&'static str),
    /// Nothing; the doc says what that means.
    Absent,
    /// It must be set.
    Required,
}

impl Key {
    /// The environment variable of this key.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    pub fn is_secret(&self) -> bool {
        self.kind == Kind::Secret
    }
}

/// Begins the name of each environment variable that is a key.
pub const PREFIX: &str = "TIDEGATE__";

/// The environment variable of a key name.
pub(crate) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('.', "__").to_uppercase())
}

impl Kind {
    /// For the table of the docs.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Secret => "secret".into(),
            Self::Listen => "host:port".into(),
            Self::Address => "http://host:port".into(),
            Self::Addresses => "http://host:port, several separated by commas".into(),
            Self::Path => "path".into(),
            Self::Duration => "duration".into(),
            Self::Size => "size".into(),
            Self::Count => "number".into(),
            Self::Flag => "true or false".into(),
            Self::Choice(choices) => choices.join(", "),
            Self::Some(names) => format!("some of {}, separated by commas", names.join(", ")),
        }
    }

    /// Turns the text into what the typed settings take. The error says how to write it.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("it is empty".into());
        }
        match self {
            Self::Text | Self::Secret | Self::Path => Ok(Value::from(text)),
            Self::Listen => match text.parse::<std::net::SocketAddr>() {
                Ok(_) => Ok(Value::from(text)),
                Err(_) => {
                    Err("write a numeric address with its port, like 127.0.0.1:7100 or [::]:7100".into())
                }
            },
            Self::Addresses => {
                for one in text.split(',') {
                    Self::Address
                        .parse(one)
                        .map_err(|why| format!("of {:?}: {why}", one.trim()))?;
                }
                Ok(Value::from(text))
            }
            Self::Address => {
                let rest = text
                    .strip_prefix("http://")
                    .or_else(|| text.strip_prefix("https://"));
                if rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':'])) {
                    Ok(Value::from(text))
                } else {
                    Err("write it like http://publisher:7300".into())
                }
            }
            Self::Duration => parse_duration(text).map(Value::from),
            Self::Size => parse_size(text).map(Value::from),
            Self::Count => match text.replace('_', "").parse::<u32>() {
                Ok(number) if number > 0 => Ok(Value::from(number)),
                _ => Err(format!("write a whole number from 1 to {}", u32::MAX)),
            },
            Self::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Ok(Value::from(true)),
                "false" | "no" | "off" | "0" => Ok(Value::from(false)),
                _ => Err("write true or false".into()),
            },
            Self::Some(names) => {
                let unknown = text.split(',').map(str::trim).find(|name| !names.contains(name));
                match unknown {
                    None => Ok(Value::from(text)),
                    Some(name) => Err(format!("{name:?} is not one of: {}", names.join(", "))),
                }
            }
            Self::Choice(choices) => {
                let found = choices.iter().find(|choice| choice.eq_ignore_ascii_case(text));
                found
                    .map(|choice| Value::from(*choice))
                    .ok_or_else(|| format!("write one of: {}", choices.join(", ")))
            }
        }
    }
}

/// Whole milliseconds.
fn parse_duration(text: &str) -> Result<u64, String> {
    const HOW: &str = "write it like 30s, 5m, 1h30m, 500ms, PT30S, or as whole milliseconds";
    if let Ok(millis) = text.parse::<u64>() {
        return Ok(millis);
    }
    let span: jiff::Span = text.parse().map_err(|_| HOW.to_owned())?;
    let duration = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("months and years have no fixed length; {HOW}"))?;
    if duration.is_negative() {
        return Err(format!("it is negative; {HOW}"));
    }
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("it is finer than a millisecond; {HOW}"));
    }
    u64::try_from(duration.as_millis()).map_err(|_| HOW.to_owned())
}

/// Whole bytes.
fn parse_size(text: &str) -> Result<u64, String> {
    const HOW: &str =
        "write it like 512MiB, 2GB, or as whole bytes (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)";
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    let number: u64 = text[..digits]
        .replace('_', "")
        .parse()
        .map_err(|_| HOW.to_owned())?;
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(HOW.to_owned()),
    };
    number
        .checked_mul(unit)
        .ok_or_else(|| format!("it is too large; {HOW}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("PT30S", 30_000),
            ("pt30s", 30_000),
            ("500ms", 500),
            ("1500", 1500),
            ("0", 0),
            ("0s", 0),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("2d", 172_800_000),
            ("P1DT1H", 90_000_000),
            ("1.5s", 1500),
            ("PT0.25S", 250),
        ] {
            assert_eq!(Kind::Duration.parse(text), Ok(Value::from(millis)), "{text}");
        }
        for text in [
            "",
            "soon",
            "-5s",
            "1us",
            "P1M",
            "1y",
            "5 5",
            "99999999999999999999",
        ] {
            assert!(Kind::Duration.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512MiB", 536_870_912_u64),
            ("512 mib", 536_870_912),
            ("2GB", 2_000_000_000),
            ("1024", 1024),
            ("1_000b", 1000),
            ("3KiB", 3072),
            ("1TiB", 1_099_511_627_776),
        ] {
            assert_eq!(Kind::Size.parse(text), Ok(Value::from(bytes)), "{text}");
        }
        for text in ["", "MiB", "1.5GiB", "-1", "512M", "99999999999TiB"] {
            assert!(Kind::Size.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn other_kinds_say_how_to_write_them() {
        for (kind, good, bad) in [
            (Kind::Listen, "127.0.0.1:0", "localhost:80"),
            (Kind::Listen, "[::1]:7100", "7100"),
            (Kind::Address, "http://publisher:7300", "publisher:7300"),
            (Kind::Address, "https://h", "http://"),
            (Kind::Addresses, "http://a:7100", "a:7100"),
            (Kind::Some(&["x", "y"]), "x, y", "x, z"),
            (Kind::Addresses, "http://a:7100, http://b:7100", "http://a:7100,"),
            (Kind::Addresses, "http://a,https://b", "http://a;http://b,c"),
            (Kind::Count, "4", "0"),
            (Kind::Flag, "TRUE", "maybe"),
            (Kind::Choice(&["text", "json"]), "JSON", "xml"),
        ] {
            assert!(kind.parse(good).is_ok(), "{good}");
            assert!(kind.parse(bad).is_err(), "{bad}");
        }
    }
}
