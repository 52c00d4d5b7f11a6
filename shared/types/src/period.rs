//! ISO-8601 periods: `PT1H`, `P1D`, `P2147483647D`.
//!
//! Promises: a period is never negative and never overflows; months and years have no fixed length and are
//! only turned into milliseconds by a calendar.

use std::fmt;

use crate::civil::{DAY, HOUR, MINUTE, SECOND};

/// Longest fixed part of a period: a little more than `P2147483647D`, which stands for "never".
const MAX_DAYS: u64 = 2_147_483_647;

/// An ISO-8601 period in its three parts that cannot be converted into each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IsoPeriod {
    months: u64,
    /// Whole weeks, kept apart because one week begins on Monday when time is cut by it.
    weeks: u64,
    days: u64,
    millis: u64,
}

/// Why a text is no period, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    #[error("{text:?} is not an ISO-8601 period (examples: PT1H, PT30S, P1D){hint}")]
    NotAPeriod { text: String, hint: String },
    #[error("{text:?} is negative; a period must be zero or longer")]
    Negative { text: String },
    #[error("{text:?} is too long")]
    TooLong { text: String },
    #[error("{text:?} has months or years, whose length varies; give it in days or less")]
    NoFixedLength { text: String },
}

impl IsoPeriod {
    pub fn parse(text: &str) -> Result<Self, PeriodError> {
        let shown = || text.chars().take(64).collect::<String>();
        let not_a_period = || PeriodError::NotAPeriod {
            text: shown(),
            hint: hint(text),
        };
        let trimmed = text.trim();
        let (outer_minus, body) = match trimmed.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        let Some((b'P' | b'p', mut rest)) = body.split_first() else {
            return Err(not_a_period());
        };
        let mut period = Self {
            months: 0,
            weeks: 0,
            days: 0,
            millis: 0,
        };
        let mut in_time = false;
        let mut last_rank = 0;
        let mut negative = false;
        let mut fields = 0;
        while let Some((&first, tail)) = rest.split_first() {
            if matches!(first, b'T' | b't') {
                if in_time || tail.is_empty() {
                    return Err(not_a_period());
                }
                in_time = true;
                rest = tail;
                continue;
            }
            let field = Field::read(rest).ok_or_else(not_a_period)?;
            rest = field.rest;
            // Units come in falling order, each once.
            let rank = field.rank(in_time).ok_or_else(not_a_period)?;
            if rank <= last_rank || (field.fraction_millis.is_some() && rank != 7) {
                return Err(not_a_period());
            }
            last_rank = rank;
            fields += 1;
            negative |= (field.minus != outer_minus) && field.has_value();
            period
                .add(rank, &field)
                .ok_or_else(|| PeriodError::TooLong { text: shown() })?;
        }
        if fields == 0 {
            return Err(not_a_period());
        }
        if negative {
            return Err(PeriodError::Negative { text: shown() });
        }
        if period.pure_weeks().is_none() {
            period.days = period.days();
            period.weeks = 0;
        }
        if period.fixed_millis().is_none() || period.months > 12 * MAX_DAYS / 365 {
            return Err(PeriodError::TooLong { text: shown() });
        }
        Ok(period)
    }

    /// Adds one field; `None` on overflow.
    fn add(&mut self, rank: u8, field: &Field<'_>) -> Option<()> {
        let whole = field.whole;
        match rank {
            1 => self.months = self.months.checked_add(whole.checked_mul(12)?)?,
            2 => self.months = self.months.checked_add(whole)?,
            3 => self.weeks = whole,
            4 => self.days = whole,
            5 => self.millis = self.millis.checked_add(whole.checked_mul(HOUR as u64)?)?,
            6 => self.millis = self.millis.checked_add(whole.checked_mul(MINUTE as u64)?)?,
            _ => {
                let seconds = whole.checked_mul(SECOND as u64)?;
                self.millis = self
                    .millis
                    .checked_add(seconds)?
                    .checked_add(field.fraction_millis.unwrap_or(0))?;
            }
        }
        Some(())
    }

    /// Years and months, as months.
    pub fn months(self) -> u64 {
        self.months
    }
    /// Weeks, when the period is whole weeks and nothing else.
    pub fn pure_weeks(self) -> Option<u64> {
        (self.weeks > 0 && self.months == 0 && self.days == 0 && self.millis == 0).then_some(self.weeks)
    }
    /// Weeks and days, as days.
    pub fn days(self) -> u64 {
        self.weeks.saturating_mul(7).saturating_add(self.days)
    }
    /// Hours and less, as milliseconds.
    pub fn time_millis(self) -> u64 {
        self.millis
    }
    pub fn is_zero(self) -> bool {
        self.months == 0 && self.days() == 0 && self.millis == 0
    }

    fn fixed_millis(self) -> Option<u64> {
        let days = self.weeks.checked_mul(7)?.checked_add(self.days)?;
        let millis = days.checked_mul(DAY as u64)?.checked_add(self.millis)?;
        (millis <= (MAX_DAYS + 1) * DAY as u64).then_some(millis)
    }
}

/// One number with its unit.
struct Field<'a> {
    minus: bool,
    whole: u64,
    fraction_millis: Option<u64>,
    unit: u8,
    rest: &'a [u8],
}

impl<'a> Field<'a> {
    fn read(text: &'a [u8]) -> Option<Self> {
        let (minus, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > 18 {
            return None;
        }
        let (number, mut rest) = text.split_at(digits);
        let whole = number
            .iter()
            .fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        let mut fraction_millis = None;
        if let [b'.' | b',', tail @ ..] = rest {
            let places = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if places == 0 {
                return None;
            }
            let millis = (0..3).fold(0, |sum, at| {
                sum * 10 + tail[..places].get(at).map_or(0, |digit| u64::from(digit - b'0'))
            });
            fraction_millis = Some(millis);
            rest = &tail[places..];
        }
        let (&unit, rest) = rest.split_first()?;
        Some(Self {
            minus,
            whole,
            fraction_millis,
            unit: unit.to_ascii_uppercase(),
            rest,
        })
    }

    fn has_value(&self) -> bool {
        self.whole > 0 || self.fraction_millis.is_some_and(|millis| millis > 0)
    }

    /// The place of the unit in the order of ISO-8601.
    fn rank(&self, in_time: bool) -> Option<u8> {
        match (in_time, self.unit) {
            (false, b'Y') => Some(1),
            (false, b'M') => Some(2),
            (false, b'W') => Some(3),
            (false, b'D') => Some(4),
            (true, b'H') => Some(5),
            (true, b'M') => Some(6),
            (true, b'S') => Some(7),
            _ => None,
        }
    }
}

/// Milliseconds of a period of fixed length. `P2147483647D` ("never") gives its huge but exact number.
pub fn parse_period_millis(text: &str) -> Result<u64, PeriodError> {
    let period = IsoPeriod::parse(text)?;
    if period.months > 0 {
        return Err(PeriodError::NoFixedLength {
            text: text.chars().take(64).collect(),
        });
    }
    period.fixed_millis().ok_or_else(|| PeriodError::TooLong {
        text: text.chars().take(64).collect(),
    })
}

/// The number of days that people write for "never": 2³¹ − 1.
pub const NEVER_MILLIS: u64 = MAX_DAYS * DAY as u64;

/// The shortest usual way to write milliseconds as a period: `PT1H`, `PT5.5S`, `P1D` only for whole days,
/// `PT0S`.
pub fn format_period_millis(millis: u64) -> String {
    let (second, minute, hour, day) = (SECOND as u64, MINUTE as u64, HOUR as u64, DAY as u64);
    if millis >= day && millis.is_multiple_of(day) {
        return format!("P{}D", millis / day);
    }
    if millis == 0 {
        return "PT0S".to_owned();
    }
    let (hours, minutes, rest) = (millis / hour, millis / minute % 60, millis % minute);
    let part = |value: u64, unit: &str| {
        if value > 0 {
            format!("{value}{unit}")
        } else {
            String::new()
        }
    };
    let seconds = if rest.is_multiple_of(second) {
        part(rest / second, "S")
    } else {
        let digits = format!("{}.{:03}", rest / second, rest % second);
        format!("{}S", digits.trim_end_matches('0'))
    };
    format!("PT{}{}{seconds}", part(hours, "H"), part(minutes, "M"))
}

/// `; did you mean PT1H?` for what people write by habit (`1h`, `30 min`), else empty.
fn hint(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 9 {
        return String::new();
    }
    let (number, unit) = text.split_at(digits);
    let suggestion = match unit.trim() {
        "ms" | "millis" | "milliseconds" if number.len() > 3 && number.ends_with("000") => {
            format!("PT{}S", &number[..number.len() - 3])
        }
        "s" | "sec" | "secs" | "second" | "seconds" => format!("PT{number}S"),
        "m" | "min" | "mins" | "minute" | "minutes" => format!("PT{number}M"),
        "h" | "hr" | "hrs" | "hour" | "hours" => format!("PT{number}H"),
        "d" | "day" | "days" => format!("P{number}D"),
        "w" | "week" | "weeks" => format!("P{number}W"),
        _ => return String::new(),
    };
    format!("; did you mean {suggestion}?")
}

impl fmt::Display for IsoPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P")?;
        match (self.months / 12, self.months % 12) {
            (0, 0) => {}
            (0, months) => write!(f, "{months}M")?,
            (years, 0) => write!(f, "{years}Y")?,
            (years, months) => write!(f, "{years}Y{months}M")?,
        }
        if let Some(weeks) = self.pure_weeks() {
            return write!(f, "{weeks}W");
        }
        if self.days() > 0 {
            write!(f, "{}D", self.days())?;
        }
        if self.millis == 0 {
            return if self.is_zero() {
                f.write_str("T0S")
            } else {
                Ok(())
            };
        }
        // Below a day, the part behind `P` of the usual text; a whole day in hours is written as hours.
        if self.millis.is_multiple_of(HOUR as u64) {
            write!(f, "T{}H", self.millis / HOUR as u64)
        } else {
            f.write_str(&format_period_millis(self.millis)[1..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_become_milliseconds() {
        for (text, millis) in [
            ("PT1H", 3_600_000),
            ("PT3600S", 3_600_000),
            ("pt30s", 30_000),
            ("P1D", 86_400_000),
            ("P1W", 604_800_000),
            ("P1DT2H3M4.5S", 86_400_000 + 7_384_500),
            ("PT0.0019S", 1),
            ("PT0S", 0),
            ("P0D", 0),
            ("PT-0S", 0),
            (" PT30H ", 108_000_000),
            ("-PT-5M", 300_000),
            ("P2147483647D", 185_542_587_100_800_000),
        ] {
            assert_eq!(parse_period_millis(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_period_is_refused_with_the_reason() {
        for text in [
            "", "P", "PT", "1h", "PT1", "PT1HT1M", "P1H", "PT1D", "PT1M1H", "PT1H1H", "PT1.5H", "PTH", "P1D1",
        ] {
            assert!(
                matches!(parse_period_millis(text), Err(PeriodError::NotAPeriod { .. })),
                "{text}"
            );
        }
        for text in ["PT-5M", "-PT5M", "P-1D", "PT1H-1M"] {
            assert!(
                matches!(parse_period_millis(text), Err(PeriodError::Negative { .. })),
                "{text}"
            );
        }
        for text in ["P2147483649D", "PT999999999999999999H", "P999999999999999999W"] {
            assert!(
                matches!(parse_period_millis(text), Err(PeriodError::TooLong { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            parse_period_millis("P1M"),
            Err(PeriodError::NoFixedLength { .. })
        ));
    }

    #[test]
    fn a_habit_is_answered_with_the_iso_form() {
        for (text, meant) in [
            ("1h", "PT1H"),
            ("30 min", "PT30M"),
            ("5s", "PT5S"),
            ("7 days", "P7D"),
        ] {
            let message = parse_period_millis(text).unwrap_err().to_string();
            assert!(message.ends_with(&format!("did you mean {meant}?")), "{message}");
        }
    }

    #[test]
    fn a_written_period_reads_back_as_the_same_milliseconds() {
        for (millis, text) in [
            (0, "PT0S"),
            (1, "PT0.001S"),
            (5_500, "PT5.5S"),
            (80_000, "PT1M20S"),
            (1_800_000, "PT30M"),
            (3_600_000, "PT1H"),
            (86_400_000, "P1D"),
            (108_000_000, "PT30H"),
            (NEVER_MILLIS, "P2147483647D"),
        ] {
            assert_eq!(format_period_millis(millis), text);
            assert_eq!(parse_period_millis(text), Ok(millis));
        }
        for text in ["P1Y2M", "P2W", "P9D", "P1DT12H", "P2W3D", "PT90M", "PT24H", "P3M"] {
            let period = IsoPeriod::parse(text).unwrap();
            assert_eq!(
                IsoPeriod::parse(&period.to_string()),
                Ok(period),
                "{text} as {period}"
            );
        }
    }
}
