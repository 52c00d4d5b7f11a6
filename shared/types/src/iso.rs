//! ISO-8601 times as bytes, in the forms that the original reads.
//!
//! Promises: no allocation; `None` for anything that is no time; `2015-09-12T00:46:58[.771]Z` takes a short way.
//! Reads: year (1-9 digits, signed), `-MM`, `-DD`, or `-DDD` (day of year), or `-Www[-d]`; then `T` or a space and
//! `HH[:mm[:ss]]` with a fraction of its last part (`.` or `,`); then `Z` or an offset. No zone means UTC.

use crate::civil::{DAY, HOUR, MINUTE, SECOND, days_from_civil, days_in_month, is_leap, millis_from_fields};
use crate::zone::parse_offset;

/// Milliseconds since 1970 of an ISO-8601 time.
pub(crate) fn parse_iso(text: &[u8]) -> Option<i64> {
    if let Some(millis) = usual_form(text) {
        return Some(millis);
    }
    let local = parse_iso_local(text)?;
    local.millis.checked_sub(local.offset.unwrap_or(0))
}

/// A time as it is written, before its offset is taken off.
pub(crate) struct LocalTime {
    pub(crate) millis: i64,
    /// Milliseconds east of UTC, when the text says.
    pub(crate) offset: Option<i64>,
}

pub(crate) fn parse_iso_local(text: &[u8]) -> Option<LocalTime> {
    let (date, rest) = read_date(text)?;
    let (of_day, rest) = match rest.split_first() {
        // `2015-09-12T` alone is a date.
        Some((b'T' | b't', [])) => (0, rest.get(1..)?),
        Some((b'T' | b't', tail)) if tail.first().is_some_and(u8::is_ascii_digit) => read_time(tail)?,
        // Behind a space only what is clearly a time: `1 2` is none.
        Some((b' ', tail)) if tail.iter().take(3).any(|byte| *byte == b':') => read_time(tail)?,
        Some((b'T' | b't', tail)) => (0, tail),
        _ => (0, rest),
    };
    let offset = if rest.is_empty() {
        None
    } else {
        Some(parse_offset(rest)?)
    };
    // Wider than the result, since the first day of the 64-bit range begins before it.
    let millis = i128::from(date) * i128::from(DAY) + i128::from(of_day);
    Some(LocalTime {
        millis: i64::try_from(millis).ok()?,
        offset,
    })
}

/// `YYYY-MM-DDTHH:MM:SS`, with or without three digits of fraction and `Z`.
pub(crate) fn usual_form(text: &[u8]) -> Option<i64> {
    let millis = match text.len() {
        19 => 0,
        20 if text[19] == b'Z' => 0,
        23 if text[19] == b'.' => digits(text, 20, 3)?,
        24 if text[19] == b'.' && text[23] == b'Z' => digits(text, 20, 3)?,
        _ => return None,
    };
    let marks = text[4] == b'-'
        && text[7] == b'-'
        && matches!(text[10], b'T' | b' ')
        && text[13] == b':'
        && text[16] == b':';
    if !marks {
        return None;
    }
    let time = (
        digits(text, 11, 2)?,
        digits(text, 14, 2)?,
        digits(text, 17, 2)?,
        millis,
    );
    millis_from_fields(
        digits(text, 0, 4)?,
        digits(text, 5, 2)?,
        digits(text, 8, 2)?,
        time,
    )
}

/// Exactly `count` digits at `at`.
fn digits(text: &[u8], at: usize, count: usize) -> Option<i64> {
    let mut value = 0;
    for byte in text.get(at..at + count)? {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(byte - b'0');
    }
    Some(value)
}

/// As many digits as there are, between 1 and `most`.
pub(crate) fn read_number(text: &[u8], most: usize) -> Option<(i64, &[u8])> {
    let count = text
        .iter()
        .take(most)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if count == 0 {
        return None;
    }
    Some((digits(text, 0, count)?, &text[count..]))
}

/// A date in days since 1970-01-01.
fn read_date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, unsigned) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        all => (1, all),
    };
    let (year, rest) = read_number(unsigned, 9)?;
    let year = sign * year;
    let Some((b'-', tail)) = rest.split_first() else {
        return Some((days_from_civil(year, 1, 1), rest));
    };
    if let [b'W', tail @ ..] = tail {
        return read_week_date(year, tail);
    }
    let width = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if width == 3 {
        let (day, rest) = read_number(tail, 3)?;
        let last = if is_leap(year) { 366 } else { 365 };
        return (1..=last)
            .contains(&day)
            .then(|| (days_from_civil(year, 1, 1) + day - 1, rest));
    }
    let (month, rest) = read_number(tail, 2)?;
    if !(1..=12).contains(&month) {
        return None;
    }
    // `2015-09-08:00` would be a month with an offset; a date with a day is always meant.
    let Some((b'-', tail)) = rest.split_first() else {
        return Some((days_from_civil(year, month, 1), rest));
    };
    let (day, rest) = read_number(tail, 2)?;
    (1..=days_in_month(year, month))
        .contains(&day)
        .then(|| (days_from_civil(year, month, day), rest))
}

/// What follows `-W`: week and day of week of an ISO week year.
fn read_week_date(year: i64, text: &[u8]) -> Option<(i64, &[u8])> {
    let (week, rest) = read_number(text, 2)?;
    let (weekday, rest) = match rest {
        [b'-', tail @ ..] => read_number(tail, 1)?,
        _ => (1, rest),
    };
    let first = first_monday_of_week_year(year);
    let weeks = (first_monday_of_week_year(year + 1) - first) / 7;
    ((1..=weeks).contains(&week) && (1..=7).contains(&weekday))
        .then(|| (first + (week - 1) * 7 + weekday - 1, rest))
}

/// Week 1 is the one with January 4.
fn first_monday_of_week_year(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    // 1970-01-01 was a Thursday.
    fourth - (fourth + 3).rem_euclid(7)
}

/// Milliseconds of the day; each part may be the last and then may have a fraction.
fn read_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (hour, mut rest) = read_number(text, 2)?;
    let mut total = hour * HOUR;
    let mut unit = HOUR;
    let mut valid = hour <= 23;
    for next in [MINUTE, SECOND] {
        let [b':', tail @ ..] = rest else { break };
        let (value, tail) = read_number(tail, 2)?;
        valid &= value <= 59;
        total += value * next;
        unit = next;
        rest = tail;
    }
    if let [b'.' | b',', tail @ ..] = rest {
        let (fraction, tail) = read_fraction(tail, unit)?;
        total += fraction;
        rest = tail;
    }
    valid.then_some((total, rest))
}

/// Digits behind a decimal point as milliseconds of `unit`, cut (not rounded).
pub(crate) fn read_fraction(text: &[u8], unit: i64) -> Option<(i64, &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    // Nine places are finer than a millisecond of an hour; the rest cannot change the result upwards.
    let kept = count.min(9);
    let value = digits(text, 0, kept)?;
    Some((value * unit / 10_i64.pow(kept as u32), &text[count..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<i64> {
        parse_iso(text.as_bytes())
    }

    #[test]
    fn the_short_way_and_the_long_way_agree_with_an_independent_parser() {
        let mut millis = -62_135_596_800_000_i64;
        while millis < 253_402_000_000_000 {
            let instant = jiff::Timestamp::from_millisecond(millis).unwrap();
            let text = format!("{instant:.3}");
            assert_eq!(parse(&text), Some(millis), "{text}");
            assert_eq!(parse(&format!("{instant:.6}")), Some(millis), "{text}");
            millis += 7_919_000_123_457;
        }
    }

    #[test]
    fn every_form_of_the_original_is_read() {
        let day = parse("2015-09-12T00:00:00.000Z").unwrap();
        assert_eq!(day, 1_442_016_000_000);
        for (text, millis) in [
            ("2015-09-12", day),
            ("2015-9-12", day),
            ("2015-09-12T", day),
            ("2015-255", day),
            ("2015-W37-6", day),
            ("2015-09-12T00", day),
            ("2015-09-12 00:00", day),
            ("2015-09-12t00:00z", day),
            ("2015-09-12T02:00+02:00", day),
            ("2015-09-12T02:00:00+0200", day),
            ("2015-09-11T19:00:00-05", day),
            ("2015-09-11T24:00", i64::MIN),
            ("2015-09-12T00:30.5", day + 30 * MINUTE + 30 * SECOND),
            ("2015-09-12T01.5", day + 90 * MINUTE),
            ("2015-09-12T00:00:01.5", day + 1_500),
            ("2015-09-12T00:00:01,123456789", day + 1_123),
            ("2015-09-12T00:00:00.9999999999999", day + 999),
            ("2015", 1_420_070_400_000),
            ("2015-01", 1_420_070_400_000),
            ("1970-01-01T00:00:00.000Z", 0),
            ("+1970-01-01", 0),
        ] {
            let expected = if millis == i64::MIN { None } else { Some(millis) };
            assert_eq!(parse(text), expected, "{text}");
        }
        // Week 1 of 2021 begins on January 4; 2020 has 53 weeks.
        assert_eq!(parse("2021-W01"), parse("2021-01-04"));
        assert_eq!(parse("2020-W53-7"), parse("2021-01-03"));
        assert_eq!(parse("2021-W53"), None);
    }

    #[test]
    fn what_is_no_time_is_nothing() {
        for text in [
            "",
            "-",
            "T",
            "2015-",
            "2015-13-01",
            "2015-02-30",
            "2015-00-10",
            "2015-09-12T25:00",
            "2015-09-12T00:60",
            "2015-09-12T23:59:60Z",
            "2015-09-12T00:00:00.Z",
            "2015-09-12T00:00:00.000ZZ",
            "2015-09-12X00:00:00.000Z",
            "2015-09-12 ",
            "2015/09/12",
            "2015-366",
            "2015-000",
            "2015-09-12T00:00:00+25:00",
            "1234567890-01-01",
            "null",
            "\u{661}\u{662}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
