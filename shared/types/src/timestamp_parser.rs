//! Reads the time of a row by the format of its spec.
//!
//! Promises: no allocation (but for zone names); the answer depends on the text and the format alone; a time
//! outside [`TimestampMillis::MIN`]..=[`TimestampMillis::MAX`] is refused here, so that nothing behind this has to
//! (B02). The same number gives the same time whether it came as JSON number or as text.

use std::fmt::Write as _;

use crate::civil::SECOND;
use crate::iso::{parse_iso, parse_iso_local, usual_form};
use crate::joda::{JodaPattern, PatternError};
use crate::time::TimestampMillis;
use crate::zone::Zone;

/// A compiled timestamp format.
#[derive(Debug, Clone)]
pub struct TimestampParser(Format);

#[derive(Debug, Clone)]
enum Format {
    Auto,
    Iso,
    Number(Unit),
    Pattern(JodaPattern),
}

/// What one of a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    /// Seconds whose fraction counts.
    FractionalSecond,
    Milli,
    Micro,
    Nano,
}

/// Why a value is no time of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimestampError {
    #[error("the time does not have the format of timestampSpec")]
    WrongFormat,
    #[error("the time is empty")]
    Empty,
    #[error("the time lies outside -9998-01-01 to 9999-12-30")]
    OutOfRange,
}

impl TimestampParser {
    /// A plain number is milliseconds (a fraction is cut), anything else is ISO-8601, with a zone name behind a
    /// space if there is one.
    pub fn auto() -> Self {
        Self(Format::Auto)
    }
    pub fn iso() -> Self {
        Self(Format::Iso)
    }
    /// Seconds; a fraction is cut.
    pub fn posix() -> Self {
        Self(Format::Number(Unit::Second))
    }
    pub fn millis() -> Self {
        Self(Format::Number(Unit::Milli))
    }
    pub fn micro() -> Self {
        Self(Format::Number(Unit::Micro))
    }
    pub fn nano() -> Self {
        Self(Format::Number(Unit::Nano))
    }
    /// Seconds with a fraction.
    pub fn ruby() -> Self {
        Self(Format::Number(Unit::FractionalSecond))
    }
    /// A joda-style pattern.
    pub fn pattern(text: &str) -> Result<Self, PatternError> {
        JodaPattern::compile(text).map(|pattern| Self(Format::Pattern(pattern)))
    }

    pub fn parse_str(&self, text: &str) -> Result<TimestampMillis, TimestampError> {
        if matches!(self.0, Format::Auto | Format::Iso)
            && let Some(millis) = usual_form(text.as_bytes())
        {
            return checked(millis);
        }
        let text = unquoted(text);
        if text.is_empty() {
            return Err(TimestampError::Empty);
        }
        let millis = match &self.0 {
            Format::Auto => match Decimal::read(text.as_bytes()) {
                Some(number) => return number.in_unit(Unit::Milli),
                None => parse_iso(text.as_bytes()).or_else(|| with_zone_name(text)),
            },
            Format::Iso => parse_iso(text.as_bytes()),
            Format::Number(unit) => {
                return Decimal::read(text.as_bytes())
                    .ok_or(TimestampError::WrongFormat)?
                    .in_unit(*unit);
            }
            Format::Pattern(pattern) => pattern.parse(text),
        };
        checked(millis.ok_or(TimestampError::WrongFormat)?)
    }

    pub fn parse_i64(&self, number: i64) -> Result<TimestampMillis, TimestampError> {
        match &self.0 {
            Format::Auto => checked(number),
            Format::Number(unit) => whole_in_unit(number, *unit),
            // A year such as 2008, or a pattern such as yyyyMMdd, may come as a number.
            Format::Iso | Format::Pattern(_) => {
                let mut text = ShortText::default();
                write!(text, "{number}").map_err(|_| TimestampError::WrongFormat)?;
                self.parse_str(text.as_str())
            }
        }
    }

    pub fn parse_f64(&self, number: f64) -> Result<TimestampMillis, TimestampError> {
        if !number.is_finite() {
            return Err(TimestampError::WrongFormat);
        }
        // Beyond 64 bits.
        if number.abs() >= i64::MAX as f64 {
            return Err(TimestampError::OutOfRange);
        }
        match &self.0 {
            Format::Number(Unit::FractionalSecond) => {
                if number.abs() >= 9.0e11 {
                    return Err(TimestampError::OutOfRange);
                }
                // To whole microseconds first: 1.001 is a little less than 1.001 as a float, and must not lose
                // its last millisecond.
                checked(((number * 1e6).round() as i64).div_euclid(1_000))
            }
            Format::Auto => checked(number.trunc() as i64),
            Format::Number(unit) => whole_in_unit(number.trunc() as i64, *unit),
            Format::Iso | Format::Pattern(_) if number.fract() == 0.0 => self.parse_i64(number as i64),
            Format::Iso | Format::Pattern(_) => {
                let mut text = ShortText::default();
                write!(text, "{number}").map_err(|_| TimestampError::WrongFormat)?;
                self.parse_str(text.as_str())
            }
        }
    }
}

/// A plain decimal number as text: `-?digits[.digits]`, no exponent.
struct Decimal {
    sign: i64,
    /// `None` when it does not fit, which is out of range in every unit.
    whole: Option<i64>,
    /// What is behind the point, rounded to millionths (so 1,000,000 is possible).
    millionths: i64,
}

impl Decimal {
    fn read(text: &[u8]) -> Option<Self> {
        let (sign, digits) = match text {
            [b'-', rest @ ..] => (-1, rest),
            all => (1, all),
        };
        let point = digits.iter().position(|byte| *byte == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &[][..]),
        };
        let all_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        if !all_digits(whole) || (point.is_some() && !all_digits(fraction)) {
            return None;
        }
        let value = |digit: &u8| i64::from(digit - b'0');
        let add = |sum: i64, digit: &u8| sum.checked_mul(10)?.checked_add(value(digit));
        let place = |at: usize| fraction.get(at).map_or(0, value);
        let millionths = (0..6).fold(0, |sum, at| sum * 10 + place(at)) + i64::from(place(6) >= 5);
        Some(Self {
            sign,
            whole: whole.iter().try_fold(0, add),
            millionths,
        })
    }

    fn in_unit(&self, unit: Unit) -> Result<TimestampMillis, TimestampError> {
        let whole = self.whole.ok_or(TimestampError::OutOfRange)?;
        if unit != Unit::FractionalSecond {
            return whole_in_unit(self.sign * whole, unit);
        }
        let micros = whole
            .checked_mul(1_000_000)
            .and_then(|micros| micros.checked_add(self.millionths));
        checked((self.sign * micros.ok_or(TimestampError::OutOfRange)?).div_euclid(1_000))
    }
}

fn whole_in_unit(number: i64, unit: Unit) -> Result<TimestampMillis, TimestampError> {
    let millis = match unit {
        Unit::Second | Unit::FractionalSecond => {
            number.checked_mul(SECOND).ok_or(TimestampError::OutOfRange)?
        }
        Unit::Milli => number,
        // The millisecond that holds the instant, also before 1970.
        Unit::Micro => number.div_euclid(1_000),
        Unit::Nano => number.div_euclid(1_000_000),
    };
    checked(millis)
}

fn checked(millis: i64) -> Result<TimestampMillis, TimestampError> {
    let instant = TimestampMillis(millis);
    if instant.is_in_range() {
        Ok(instant)
    } else {
        Err(TimestampError::OutOfRange)
    }
}

/// Without blanks around it, and without quotes if it is wrapped in them.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"')
        .and_then(|inner| inner.strip_suffix('"'))
        .map_or(text, str::trim)
}

/// `2015-09-12 00:46:58 Europe/Paris`.
fn with_zone_name(text: &str) -> Option<i64> {
    let (time, name) = text.rsplit_once(' ')?;
    let zone = Zone::parse(name).ok()?;
    let local = parse_iso_local(time.trim_end().as_bytes())?;
    match local.offset {
        Some(_) => None,
        None => zone.instant_of_local(local.millis),
    }
}

/// A number as text, on the stack.
#[derive(Default)]
struct ShortText {
    bytes: [u8; 32],
    length: usize,
}

impl ShortText {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl std::fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
