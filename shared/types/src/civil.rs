//! Proleptic Gregorian calendar arithmetic on plain integers.
//!
//! Owns: days ↔ (year, month, day). Promises: exact for every year that fits in milliseconds of an `i64`, so
//! that buckets beyond year 9999 (where calendar libraries stop) can still be computed and printed (B02).
//! Must never: know about time zones.

pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// Days since 1970-01-01. `month` is 1-12; `day` may lie outside the month and simply counts on.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last day of a year.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month (1-12) and day (1-31) of a day counted from 1970-01-01.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

pub(crate) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Milliseconds of a civil date and time, or `None` when a field is outside its calendar range or the result
/// does not fit. Hours end at 23 and seconds at 59 (no leap seconds), as in the original.
pub(crate) fn millis_from_fields(
    year: i64,
    month: i64,
    day: i64,
    (hour, minute, second, millis): (i64, i64, i64, i64),
) -> Option<i64> {
    let in_range = (-300_000_000..=300_000_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && (0..=23).contains(&hour)
        && (0..=59).contains(&minute)
        && (0..=59).contains(&second);
    if !in_range {
        return None;
    }
    let of_day = hour * HOUR + minute * MINUTE + second * SECOND + millis;
    days_from_civil(year, month, day)
        .checked_mul(DAY)?
        .checked_add(of_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_agrees_with_an_independent_one_on_every_month_of_twenty_thousand_years() {
        for year in -9_999..=9_999_i16 {
            for month in 1..=12_i8 {
                for day in [1, 15, 28] {
                    let there = jiff::civil::date(year, month, day)
                        .at(0, 0, 0, 0)
                        .duration_since(jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0))
                        .as_hours()
                        / 24;
                    let here = days_from_civil(year.into(), month.into(), day.into());
                    assert_eq!(here, there, "{year}-{month}-{day}");
                    assert_eq!(civil_from_days(here), (year.into(), month.into(), day.into()));
                }
            }
        }
    }

    #[test]
    fn a_day_that_does_not_exist_has_no_milliseconds() {
        let midnight = (0, 0, 0, 0);
        assert_eq!(millis_from_fields(2023, 2, 29, midnight), None);
        assert_eq!(millis_from_fields(1900, 2, 29, midnight), None);
        assert!(millis_from_fields(2000, 2, 29, midnight).is_some());
        assert_eq!(millis_from_fields(2024, 1, 1, (24, 0, 0, 0)), None);
        assert_eq!(millis_from_fields(1970, 1, 2, (0, 0, 0, 5)), Some(DAY + 5));
    }
}
