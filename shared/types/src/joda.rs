//! Times by a joda-style pattern such as `yyyy-MM-dd'T'HH:mm:ss.SSSZ`.
//!
//! Promises: a pattern is checked once, when it is compiled; parsing does not allocate; the answer never depends
//! on the day it is (two-digit years: 70-99 are 19xx, 00-69 are 20xx). Missing parts are those of
//! 2000-01-01T00:00:00.000 UTC, as in the original. Names of months, days and halves are English, in any case.

use crate::civil::{DAY, HOUR, MINUTE, SECOND, days_from_civil, days_in_month, is_leap};
use crate::iso::{read_fraction, read_number};
use crate::zone::{Zone, parse_offset};

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct JodaPattern(Vec<Part>);

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("the timestamp pattern is empty")]
    Empty,
    #[error(
        "the timestamp pattern has the letter `{letter}` at position {position}, which means nothing; text is put in single quotes"
    )]
    UnknownLetter { letter: char, position: usize },
    #[error(
        "the timestamp pattern has the letter `{letter}` at position {position}, which is known but not supported yet"
    )]
    UnsupportedLetter { letter: char, position: usize },
    #[error("the timestamp pattern has a quote at position {position} that is never closed")]
    OpenQuote { position: usize },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    /// Most digits, and whether two digits mean a year of 1970-2069.
    Year {
        most: usize,
        two_digits: bool,
    },
    Month,
    MonthName,
    DayOfMonth,
    DayOfYear,
    DayName,
    /// 0-23.
    Hour,
    /// 1-24.
    HourFromOne,
    /// 0-11.
    HalfDayHour,
    /// 1-12.
    ClockHour,
    Minute,
    Second,
    /// Most digits.
    Fraction(usize),
    HalfDay,
    Offset,
    ZoneName,
}

impl Part {
    /// Takes digits, so that what stands before it must know where to stop.
    fn is_number(&self) -> bool {
        !matches!(
            self,
            Self::Literal(_)
                | Self::MonthName
                | Self::DayName
                | Self::HalfDay
                | Self::Offset
                | Self::ZoneName
        )
    }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];
/// Short zone names of North America with hours east of UTC; other short names are ambiguous in the world.
const SHORT_ZONES: [(&str, i64); 8] = [
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
];

impl JodaPattern {
    pub(crate) fn compile(pattern: &str) -> Result<Self, PatternError> {
        let letters: Vec<char> = pattern.chars().collect();
        if letters.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        while at < letters.len() {
            let letter = letters[at];
            if letter == '\'' {
                let (text, next) = quoted(&letters, at)?;
                push_literal(&mut parts, &text);
                at = next;
                continue;
            }
            if !letter.is_ascii_alphabetic() {
                push_literal(&mut parts, letter.encode_utf8(&mut [0; 4]));
                at += 1;
                continue;
            }
            let count = letters[at..].iter().take_while(|other| **other == letter).count();
            parts.push(part(letter, count, at + 1)?);
            at += count;
        }
        stop_years_before_digits(&mut parts);
        Ok(Self(parts))
    }

    /// Milliseconds since 1970, or `None` when the text does not fit.
    pub(crate) fn parse(&self, text: &str) -> Option<i64> {
        let mut found = Found::default();
        let mut rest = text;
        for part in &self.0 {
            rest = found.take(part, rest)?;
        }
        if rest.is_empty() { found.millis() } else { None }
    }
}

fn part(letter: char, count: usize, position: usize) -> Result<Part, PatternError> {
    Ok(match (letter, count) {
        ('y' | 'Y', _) => Part::Year {
            most: 9,
            two_digits: count == 2,
        },
        ('M', 1 | 2) => Part::Month,
        ('M', _) => Part::MonthName,
        ('d', _) => Part::DayOfMonth,
        ('D', _) => Part::DayOfYear,
        ('E', _) => Part::DayName,
        ('H', _) => Part::Hour,
        ('k', _) => Part::HourFromOne,
        ('K', _) => Part::HalfDayHour,
        ('h', _) => Part::ClockHour,
        ('m', _) => Part::Minute,
        ('s', _) => Part::Second,
        ('S', _) => Part::Fraction(count),
        ('a', _) => Part::HalfDay,
        ('Z', 1 | 2) => Part::Offset,
        ('Z' | 'z', _) => Part::ZoneName,
        ('G' | 'C' | 'x' | 'w' | 'e', _) => return Err(PatternError::UnsupportedLetter { letter, position }),
        _ => return Err(PatternError::UnknownLetter { letter, position }),
    })
}

/// A quoted text from its opening quote on, and where it ends; `''` is one quote.
fn quoted(letters: &[char], start: usize) -> Result<(String, usize), PatternError> {
    if letters.get(start + 1) == Some(&'\'') {
        return Ok(("'".to_owned(), start + 2));
    }
    let mut text = String::new();
    let mut at = start + 1;
    while let Some(letter) = letters.get(at) {
        if *letter != '\'' {
            text.push(*letter);
            at += 1;
        } else if letters.get(at + 1) == Some(&'\'') {
            text.push('\'');
            at += 2;
        } else {
            return Ok((text, at + 1));
        }
    }
    Err(PatternError::OpenQuote { position: start + 1 })
}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if let Some(Part::Literal(before)) = parts.last_mut() {
        *before = format!("{before}{text}").into();
    } else {
        parts.push(Part::Literal(text.into()));
    }
}

/// In `yyyyMMdd` a year has exactly as many digits as letters; elsewhere up to nine.
fn stop_years_before_digits(parts: &mut [Part]) {
    for at in 1..parts.len() {
        let (before, after) = parts.split_at_mut(at);
        if after[0].is_number()
            && let Some(Part::Year { most, two_digits }) = before.last_mut()
        {
            *most = if *two_digits { 2 } else { 4 };
        }
    }
}

/// What has been read so far.
struct Found {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: Option<i64>,
    hour: i64,
    /// Hour of the half day, and the half, when the pattern has them.
    half_day_hour: Option<i64>,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    millis: i64,
    zone: FoundZone,
}

enum FoundZone {
    Offset(i64),
    Named(Zone),
}

impl Default for Found {
    fn default() -> Self {
        Self {
            year: 2000,
            month: 1,
            day: 1,
            day_of_year: None,
            hour: 0,
            half_day_hour: None,
            afternoon: None,
            minute: 0,
            second: 0,
            millis: 0,
            zone: FoundZone::Offset(0),
        }
    }
}

impl Found {
    /// Reads one part from the front of `text`; gives what is left.
    fn take<'t>(&mut self, part: &Part, text: &'t str) -> Option<&'t str> {
        match part {
            Part::Literal(literal) => {
                let front = text.get(..literal.len())?;
                front
                    .eq_ignore_ascii_case(literal)
                    .then(|| &text[literal.len()..])
            }
            Part::Year { most, two_digits } => self.take_year(text, *most, *two_digits),
            Part::Month => number(text, 2, 1..=12, &mut self.month),
            Part::MonthName => {
                let (index, rest) = name(text, &MONTHS)?;
                self.month = index + 1;
                Some(rest)
            }
            Part::DayOfMonth => number(text, 2, 1..=31, &mut self.day),
            Part::DayOfYear => {
                let mut day = 0;
                let rest = number(text, 3, 1..=366, &mut day)?;
                self.day_of_year = Some(day);
                Some(rest)
            }
            // Read and not used: the date says it already.
            Part::DayName => name(text, &DAYS).map(|(_, rest)| rest),
            Part::Hour => number(text, 2, 0..=23, &mut self.hour),
            Part::HourFromOne => {
                let rest = number(text, 2, 1..=24, &mut self.hour)?;
                self.hour %= 24;
                Some(rest)
            }
            Part::HalfDayHour => {
                let mut hour = 0;
                let rest = number(text, 2, 0..=11, &mut hour)?;
                self.half_day_hour = Some(hour);
                Some(rest)
            }
            Part::ClockHour => {
                let mut hour = 0;
                let rest = number(text, 2, 1..=12, &mut hour)?;
                self.half_day_hour = Some(hour % 12);
                Some(rest)
            }
            Part::Minute => number(text, 2, 0..=59, &mut self.minute),
            Part::Second => number(text, 2, 0..=59, &mut self.second),
            Part::Fraction(most) => {
                let count = text.bytes().take(*most).take_while(u8::is_ascii_digit).count();
                let (millis, _) = read_fraction(&text.as_bytes()[..count], SECOND)?;
                self.millis = millis;
                Some(&text[count..])
            }
            Part::HalfDay => {
                let half = text.get(..2)?;
                self.afternoon = Some(half.eq_ignore_ascii_case("pm"));
                (half.eq_ignore_ascii_case("am") || half.eq_ignore_ascii_case("pm")).then(|| &text[2..])
            }
            Part::Offset => {
                let length = text
                    .bytes()
                    .take_while(|byte| {
                        byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b':' | b'Z' | b'z')
                    })
                    .count();
                self.zone = FoundZone::Offset(parse_offset(&text.as_bytes()[..length])?);
                Some(&text[length..])
            }
            Part::ZoneName => {
                let length = text
                    .bytes()
                    .take_while(|byte| byte.is_ascii_alphanumeric() || b"/_+-:".contains(byte))
                    .count();
                self.zone = zone(&text[..length])?;
                Some(&text[length..])
            }
        }
    }

    fn take_year<'t>(&mut self, text: &'t str, most: usize, two_digits: bool) -> Option<&'t str> {
        let (sign, unsigned) = match text.as_bytes() {
            [b'-', ..] => (-1, &text[1..]),
            [b'+', ..] => (1, &text[1..]),
            _ => (1, text),
        };
        let (year, rest) = read_number(unsigned.as_bytes(), most)?;
        let width = unsigned.len() - rest.len();
        self.year = match year {
            0..70 if two_digits && width == 2 && unsigned.len() == text.len() => 2000 + year,
            70..100 if two_digits && width == 2 && unsigned.len() == text.len() => 1900 + year,
            _ => sign * year,
        };
        Some(&unsigned[width..])
    }

    fn millis(self) -> Option<i64> {
        let day = match self.day_of_year {
            Some(day) => {
                let last = if is_leap(self.year) { 366 } else { 365 };
                if day > last {
                    return None;
                }
                days_from_civil(self.year, 1, 1) + day - 1
            }
            None if self.day > days_in_month(self.year, self.month) => return None,
            None => days_from_civil(self.year, self.month, self.day),
        };
        let hour = match (self.half_day_hour, self.afternoon) {
            (Some(hour), half) => hour + if half == Some(true) { 12 } else { 0 },
            (None, _) => self.hour,
        };
        let of_day = hour * HOUR + self.minute * MINUTE + self.second * SECOND + self.millis;
        let local = day.checked_mul(DAY)?.checked_add(of_day)?;
        match self.zone {
            FoundZone::Offset(offset) => local.checked_sub(offset),
            FoundZone::Named(zone) => zone.instant_of_local(local),
        }
    }
}

/// A number of 1 to `most` digits within a range.
fn number<'t>(
    text: &'t str,
    most: usize,
    range: std::ops::RangeInclusive<i64>,
    into: &mut i64,
) -> Option<&'t str> {
    let (value, rest) = read_number(text.as_bytes(), most)?;
    *into = value;
    range.contains(&value).then(|| &text[text.len() - rest.len()..])
}

/// A name, in full or its first three letters.
fn name<'t>(text: &'t str, names: &[&str]) -> Option<(i64, &'t str)> {
    for (index, full) in names.iter().enumerate() {
        for candidate in [full, &full[..3]] {
            if text
                .get(..candidate.len())
                .is_some_and(|front| front.eq_ignore_ascii_case(candidate))
            {
                return Some((index as i64, &text[candidate.len()..]));
            }
        }
    }
    None
}

fn zone(text: &str) -> Option<FoundZone> {
    if let Some((_, hours)) = SHORT_ZONES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
    {
        return Some(FoundZone::Offset(hours * HOUR));
    }
    let zone = Zone::parse(text).ok()?;
    Some(match zone.fixed_offset() {
        Some(offset) => FoundZone::Offset(offset),
        None => FoundZone::Named(zone),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pattern: &str, text: &str) -> Option<String> {
        let millis = JodaPattern::compile(pattern).unwrap().parse(text)?;
        Some(crate::TimestampMillis(millis).to_string())
    }

    #[test]
    fn the_usual_patterns_read_their_texts() {
        for (pattern, text, time) in [
            (
                "yyyy-MM-dd HH:mm:ss",
                "2015-09-12 00:46:58",
                "2015-09-12T00:46:58.000Z",
            ),
            (
                "yyyy-MM-dd HH:mm:ss",
                "2015-9-2 0:6:8",
                "2015-09-02T00:06:08.000Z",
            ),
            (
                "yyyy-MM-dd'T'HH:mm",
                "2015-09-12T00:46",
                "2015-09-12T00:46:00.000Z",
            ),
            (
                "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
                "2015-09-12T00:46:58.771+0200",
                "2015-09-11T22:46:58.771Z",
            ),
            (
                "yyyy-MM-dd'T'HH:mm:ss.SSSZZ",
                "2015-09-12T00:46:58.771-05:30",
                "2015-09-12T06:16:58.771Z",
            ),
            (
                "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
                "2015-09-12T00:46:58.771Z",
                "2015-09-12T00:46:58.771Z",
            ),
            (
                "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
                "2015-09-12T00:46:58.771999",
                "2015-09-12T00:46:58.771Z",
            ),
            ("ss.SSS", "1.5", "2000-01-01T00:00:01.500Z"),
            ("yyyyMMdd", "20150912", "2015-09-12T00:00:00.000Z"),
            (
                "yyyyMMddHHmmssSSS",
                "20150912004658771",
                "2015-09-12T00:46:58.771Z",
            ),
            (
                "dd/MMM/yyyy:HH:mm:ss Z",
                "12/Sep/2015:00:46:58 -0700",
                "2015-09-12T07:46:58.000Z",
            ),
            (
                "EEE MMM dd HH:mm:ss z yyyy",
                "Sat Sep 12 00:46:58 PDT 2015",
                "2015-09-12T07:46:58.000Z",
            ),
            (
                "EEEE, d MMMM yyyy",
                "saturday, 5 SEPTEMBER 2015",
                "2015-09-05T00:00:00.000Z",
            ),
            (
                "MM/dd/yyyy hh:mm a",
                "09/12/2015 12:05 am",
                "2015-09-12T00:05:00.000Z",
            ),
            (
                "MM/dd/yyyy hh:mm a",
                "09/12/2015 12:05 PM",
                "2015-09-12T12:05:00.000Z",
            ),
            (
                "MM/dd/yyyy hh:mm a",
                "09/12/2015 01:05 PM",
                "2015-09-12T13:05:00.000Z",
            ),
            ("KK a", "11 PM", "2000-01-01T23:00:00.000Z"),
            ("kk", "24", "2000-01-01T00:00:00.000Z"),
            ("yy-MM-dd", "69-01-01", "2069-01-01T00:00:00.000Z"),
            ("yy-MM-dd", "70-01-01", "1970-01-01T00:00:00.000Z"),
            ("yy-MM-dd", "1815-01-01", "1815-01-01T00:00:00.000Z"),
            ("yyMMdd", "150912", "2015-09-12T00:00:00.000Z"),
            ("yyyy-DDD", "2016-366", "2016-12-31T00:00:00.000Z"),
            (
                "yyyy 'o''clock' HH",
                "2015 O'CLOCK 07",
                "2015-01-01T07:00:00.000Z",
            ),
            ("yyyy''HH", "2015'07", "2015-01-01T07:00:00.000Z"),
            ("MMM dd HH:mm:ss", "Feb 29 01:02:03", "2000-02-29T01:02:03.000Z"),
            (
                "yyyy-MM-dd HH:mm ZZZ",
                "2024-07-01 12:00 Europe/Paris",
                "2024-07-01T10:00:00.000Z",
            ),
            ("yyyy年MM月dd日", "2015年09月12日", "2015-09-12T00:00:00.000Z"),
            ("yyyy-MM-dd", "-0044-03-15", "-0044-03-15T00:00:00.000Z"),
            ("yyyy", "12015", "12015-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(parse(pattern, text).as_deref(), Some(time), "{pattern} on {text}");
        }
    }

    #[test]
    fn a_text_that_does_not_fit_is_nothing() {
        for (pattern, text) in [
            ("yyyy-MM-dd", "2015-13-01"),
            ("yyyy-MM-dd", "2015-02-30"),
            ("yyyy-MM-dd", "2015-09-12 "),
            ("yyyy-MM-dd", "2015-09"),
            ("yyyy-MM-dd", "x2015-09-12"),
            ("yyyy-MM-dd HH", "2015-09-12 24"),
            ("yyyy-DDD", "2015-366"),
            ("HH:mm:ss", "23:59:60"),
            ("ss.SSS", "01.1234"),
            ("ss.SSS", "01."),
            ("hh a", "13 PM"),
            ("hh a", "12 XM"),
            ("MMM", "Foo"),
            ("z", "NOWHERE"),
            ("yyyy é", "2015 é".trim_end_matches('é')),
            ("Z", "+5"),
        ] {
            assert_eq!(parse(pattern, text), None, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_refused_with_its_place() {
        for (pattern, error) in [
            ("", PatternError::Empty),
            (
                "yyyy-MM-ddTHH",
                PatternError::UnknownLetter {
                    letter: 'T',
                    position: 11,
                },
            ),
            (
                "yyyy-qq",
                PatternError::UnknownLetter {
                    letter: 'q',
                    position: 6,
                },
            ),
            (
                "xxxx-'W'ww",
                PatternError::UnsupportedLetter {
                    letter: 'x',
                    position: 1,
                },
            ),
            ("yyyy 'open", PatternError::OpenQuote { position: 6 }),
        ] {
            assert_eq!(JodaPattern::compile(pattern).unwrap_err(), error, "{pattern}");
        }
    }
}
