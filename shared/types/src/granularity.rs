//! Time buckets: named granularities, ISO periods with zone and origin, durations.
//!
//! Promises: the buckets of one granularity cut all time without gap or overlap (`bucket(t)` contains `t`, and
//! every instant of a bucket has that same bucket), also across changes of offset in a zone and at the borders
//! of the accepted row times (B02); arithmetic is checked, never wrapping.
//!
//! In a zone, days and longer follow the local calendar (a day may have 23 or 25 hours). Hours and shorter
//! begin wherever the local clock shows a multiple of the period, so `PT6H` is cut at local midnight, and the
//! hour that happens twice in autumn is two buckets. With an origin, they count elapsed time from it.

mod document;
mod zoned;

pub use document::GranularityError;

use crate::civil::{DAY, HOUR, MINUTE, SECOND, civil_from_days, days_from_civil};
use crate::interval::Interval;
use crate::period::IsoPeriod;
use crate::time::TimestampMillis;
use crate::zone::Zone;

/// How time is cut into buckets. Two values are equal when they cut alike by the same rule: the period `PT1H`
/// in UTC is `Hour`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// No cut at all: every instant is its own bucket.
    None,
    /// One bucket for all time.
    All,
    Second,
    Minute,
    FiveMinute,
    TenMinute,
    FifteenMinute,
    ThirtyMinute,
    Hour,
    SixHour,
    EightHour,
    Day,
    /// Begins on Monday.
    Week,
    Month,
    Quarter,
    Year,
    /// An ISO period that is none of the above, or one in a zone or with an origin.
    Period(PeriodGranularity),
    /// A fixed number of milliseconds from an origin.
    Duration(DurationGranularity),
}

/// A period with its zone and origin; made by [`Granularity::period`] only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeriodGranularity {
    step: Step,
    zone: Zone,
    origin: Option<TimestampMillis>,
}

/// Milliseconds from an origin; made by [`Granularity::duration`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DurationGranularity {
    millis: i64,
    origin: TimestampMillis,
}

/// A period that can be a bucket: only one of the three kinds of length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Months(i64),
    Days(i64),
    /// Apart from days, since one week without an origin begins on Monday.
    Weeks(i64),
    Millis(i64),
}

/// Monday, 1970-01-05, in days.
const FIRST_MONDAY: i64 = 4;
/// No bucket is longer: ten thousand years.
const MAX_DAYS: i64 = 3_652_500;

/// The named granularities from the finest to the coarsest, `NONE` and `ALL` at the ends.
const NAMED: [(&str, Granularity); 16] = [
    ("NONE", Granularity::None),
    ("SECOND", Granularity::Second),
    ("MINUTE", Granularity::Minute),
    ("FIVE_MINUTE", Granularity::FiveMinute),
    ("TEN_MINUTE", Granularity::TenMinute),
    ("FIFTEEN_MINUTE", Granularity::FifteenMinute),
    ("THIRTY_MINUTE", Granularity::ThirtyMinute),
    ("HOUR", Granularity::Hour),
    ("SIX_HOUR", Granularity::SixHour),
    ("EIGHT_HOUR", Granularity::EightHour),
    ("DAY", Granularity::Day),
    ("WEEK", Granularity::Week),
    ("MONTH", Granularity::Month),
    ("QUARTER", Granularity::Quarter),
    ("YEAR", Granularity::Year),
    ("ALL", Granularity::All),
];

/// How a granularity cuts, worked out once.
enum Cut<'a> {
    Instant,
    Eternity,
    Fixed { length: i64, anchor: i64 },
    MonthsUtc(i64),
    Zoned(&'a PeriodGranularity),
}

impl Granularity {
    /// The bucket that holds `instant`; `None` when its borders lie outside [`Interval::ETERNITY`], which
    /// happens to no accepted row time.
    pub fn bucket(&self, instant: TimestampMillis) -> Option<Interval> {
        let at = instant.0;
        let (start, end) = match self.cut() {
            Cut::Instant => (at, at.checked_add(1)?),
            Cut::Eternity => return Interval::ETERNITY.contains(instant).then_some(Interval::ETERNITY),
            Cut::Fixed { length, anchor } => fixed_bucket(at, length, anchor)?,
            Cut::MonthsUtc(months) => months_bucket(at, months)?,
            Cut::Zoned(period) => period.bucket(at)?,
        };
        let bucket = Interval::new(TimestampMillis(start), TimestampMillis(end))?;
        Interval::ETERNITY.encloses(bucket).then_some(bucket)
    }

    /// The start of the bucket that holds `instant`.
    pub fn floor(&self, instant: TimestampMillis) -> Option<TimestampMillis> {
        self.bucket(instant).map(Interval::start)
    }

    /// Standard granularities that are finer than this one, the largest first; in the zone and with the
    /// origin of this one. Buckets of a finer one do not always fit into one of this (weeks and months).
    pub fn finer(&self) -> Vec<Self> {
        let length = self.usual_length();
        let placed = |named: &Self| match self {
            Self::Period(period) => match Self::step_of(named) {
                Some(step) => Self::from_step(step, period.zone.clone(), period.origin),
                None => named.clone(),
            },
            _ => named.clone(),
        };
        NAMED
            .iter()
            .rev()
            .map(|(_, named)| named)
            .filter(|named| !matches!(named, Self::None | Self::All) && named.usual_length() < length)
            .map(placed)
            .collect()
    }

    /// The name, when it is a named one in UTC.
    pub fn name(&self) -> Option<&'static str> {
        NAMED
            .iter()
            .find(|(_, named)| named == self)
            .map(|(name, _)| *name)
    }

    /// A named one, in any case.
    pub fn from_name(text: &str) -> Option<Self> {
        NAMED
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, named)| named.clone())
    }

    /// Every name that [`Granularity::from_name`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// An ISO period; in UTC without an origin it becomes the named one, if there is one.
    pub fn period(
        period: IsoPeriod,
        zone: Zone,
        origin: Option<TimestampMillis>,
    ) -> Result<Self, GranularityError> {
        let refuse = |reason| GranularityError::UnusablePeriod {
            text: period.to_string(),
            reason,
        };
        if period.is_zero() {
            return Err(refuse("it is zero"));
        }
        let months = period.months() as i64;
        let days = period.days() as i64;
        let millis = period.time_millis() as i64;
        if months > MAX_DAYS / 31 || days > MAX_DAYS || millis > MAX_DAYS * DAY {
            return Err(refuse("it is longer than 10,000 years"));
        }
        let step = match (months, days, millis) {
            (_, 0, 0) => Step::Months(months),
            (0, _, 0) => period
                .pure_weeks()
                .map_or(Step::Days(days), |weeks| Step::Weeks(weeks as i64)),
            (0, _, _) => Step::Millis(days * DAY + millis),
            _ => return Err(refuse("months or years cannot be mixed with days or hours")),
        };
        Ok(Self::from_step(step, zone, origin))
    }

    /// A number of milliseconds from an origin.
    pub fn duration(millis: i64, origin: TimestampMillis) -> Result<Self, GranularityError> {
        if !(1..=MAX_DAYS * DAY).contains(&millis) {
            return Err(GranularityError::UnusableDuration { millis });
        }
        if origin == TimestampMillis(0)
            && let Some(named) = named_step(Step::Millis(millis))
        {
            return Ok(named);
        }
        Ok(Self::Duration(DurationGranularity { millis, origin }))
    }

    fn from_step(step: Step, zone: Zone, origin: Option<TimestampMillis>) -> Self {
        match named_step(step) {
            Some(named) if zone.is_utc() && origin.is_none() => named,
            _ => Self::Period(PeriodGranularity { step, zone, origin }),
        }
    }

    /// `Some((length, anchor))` when flooring is `at - (at - anchor) mod length`.
    pub(crate) fn fixed(&self) -> Option<(i64, i64)> {
        match self.cut() {
            Cut::Fixed { length, anchor } => Some((length, anchor)),
            _ => None,
        }
    }

    fn cut(&self) -> Cut<'_> {
        let fixed = |length| Cut::Fixed { length, anchor: 0 };
        match self {
            Self::None => Cut::Instant,
            Self::All => Cut::Eternity,
            Self::Second => fixed(SECOND),
            Self::Minute => fixed(MINUTE),
            Self::FiveMinute => fixed(5 * MINUTE),
            Self::TenMinute => fixed(10 * MINUTE),
            Self::FifteenMinute => fixed(15 * MINUTE),
            Self::ThirtyMinute => fixed(30 * MINUTE),
            Self::Hour => fixed(HOUR),
            Self::SixHour => fixed(6 * HOUR),
            Self::EightHour => fixed(8 * HOUR),
            Self::Day => fixed(DAY),
            Self::Week => Cut::Fixed {
                length: 7 * DAY,
                anchor: FIRST_MONDAY * DAY,
            },
            Self::Month => Cut::MonthsUtc(1),
            Self::Quarter => Cut::MonthsUtc(3),
            Self::Year => Cut::MonthsUtc(12),
            Self::Period(period) => match (period.fixed(), period.step) {
                (Some((length, anchor)), _) => Cut::Fixed { length, anchor },
                (None, Step::Months(months)) if period.zone.is_utc() && period.origin.is_none() => {
                    Cut::MonthsUtc(months)
                }
                (None, _) => Cut::Zoned(period),
            },
            Self::Duration(duration) => Cut::Fixed {
                length: duration.millis,
                anchor: duration.origin.0,
            },
        }
    }

    /// The step of a named granularity.
    fn step_of(named: &Self) -> Option<Step> {
        Some(match named.cut() {
            Cut::Fixed { length, .. } if length == 7 * DAY => Step::Weeks(1),
            Cut::Fixed { length, .. } if length == DAY => Step::Days(1),
            Cut::Fixed { length, .. } => Step::Millis(length),
            Cut::MonthsUtc(months) => Step::Months(months),
            Cut::Instant | Cut::Eternity | Cut::Zoned(_) => return None,
        })
    }

    /// The length to order by; months count as 30 days.
    fn usual_length(&self) -> i64 {
        match self.cut() {
            Cut::Instant => 1,
            Cut::Eternity => i64::MAX,
            Cut::Fixed { length, .. } => length,
            Cut::MonthsUtc(months) => months * 30 * DAY,
            Cut::Zoned(period) => match period.step {
                Step::Months(months) => months * 30 * DAY,
                Step::Weeks(weeks) => weeks * 7 * DAY,
                Step::Days(days) => days * DAY,
                Step::Millis(millis) => millis,
            },
        }
    }
}

impl PeriodGranularity {
    /// `(length, anchor)` when every bucket has the same length.
    fn fixed(&self) -> Option<(i64, i64)> {
        let (length, local_anchor) = match self.step {
            Step::Months(_) => return None,
            Step::Weeks(1) if self.origin.is_none() => (7 * DAY, FIRST_MONDAY * DAY),
            Step::Weeks(weeks) => (weeks * 7 * DAY, 0),
            Step::Days(days) => (days * DAY, 0),
            // Hours from an origin are elapsed time, whatever the zone does.
            Step::Millis(millis) => match self.origin {
                Some(origin) => return Some((millis, origin.0)),
                None => (millis, 0),
            },
        };
        let offset = self.zone.fixed_offset()?;
        Some((
            length,
            self.origin.map_or(local_anchor - offset, |origin| origin.0),
        ))
    }
}

fn named_step(step: Step) -> Option<Granularity> {
    NAMED
        .iter()
        .map(|(_, named)| named)
        .find(|named| Granularity::step_of(named) == Some(step))
        .cloned()
}

fn fixed_bucket(at: i64, length: i64, anchor: i64) -> Option<(i64, i64)> {
    let start = at.checked_sub(at.checked_sub(anchor)?.rem_euclid(length))?;
    Some((start, start.checked_add(length)?))
}

/// Months counted from 1970-01 in UTC.
fn months_bucket(at: i64, months: i64) -> Option<(i64, i64)> {
    let (year, month, _) = civil_from_days(at.div_euclid(DAY));
    let index = (year - 1970) * 12 + month - 1;
    let first = index - index.rem_euclid(months);
    Some((month_start(first)?, month_start(first + months)?))
}

/// Milliseconds of the first instant of a month counted from 1970-01.
fn month_start(index: i64) -> Option<i64> {
    days_from_civil(1970 + index.div_euclid(12), index.rem_euclid(12) + 1, 1).checked_mul(DAY)
}

#[cfg(test)]
mod tests;
