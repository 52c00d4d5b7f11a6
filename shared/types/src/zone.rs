//! Time zones by name or fixed offset, from the tz database that is built into the program.
//!
//! Promises: the same answer on every machine (the system's own tz database is never read, since replicas on
//! two machines must cut the same buckets); every instant has an offset, also beyond the years a calendar
//! library knows (the last known offset holds there).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::civil::{HOUR, MINUTE, SECOND};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone. Equal when the names are.
#[derive(Clone)]
pub struct Zone {
    name: String,
    rules: Rules,
}

#[derive(Clone)]
enum Rules {
    /// Milliseconds east of UTC.
    Fixed(i64),
    Database(TimeZone),
}

/// A text that names no time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "time zone {0:?} is unknown: give a name such as `America/New_York`, an offset such as `+05:30`, or `UTC`"
)]
pub struct UnknownZone(pub String);

impl Zone {
    pub fn utc() -> Self {
        Self {
            name: "UTC".to_owned(),
            rules: Rules::Fixed(0),
        }
    }

    /// A name of the tz database (any case), `UTC`, or an offset (`+05:30`, `-0800`, `+02`).
    pub fn parse(text: &str) -> Result<Self, UnknownZone> {
        let text = text.trim();
        let unknown = || UnknownZone(text.chars().take(64).collect());
        if ["utc", "z", "gmt", "etc/utc", "etc/gmt"]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(text))
        {
            return Ok(Self::utc());
        }
        if let Some(offset) = parse_offset(text.as_bytes()) {
            return Ok(Self {
                name: offset_name(offset),
                rules: Rules::Fixed(offset),
            });
        }
        // A name of the database is short; anything longer is not worth a search.
        if text.is_empty() || text.len() > 64 {
            return Err(unknown());
        }
        let found = DATABASE.get(text).map_err(|_| unknown())?;
        let name = found.iana_name().unwrap_or(text).to_owned();
        match found.to_fixed_offset() {
            Ok(offset) => Ok(Self {
                name,
                rules: Rules::Fixed(i64::from(offset.seconds()) * SECOND),
            }),
            Err(_) => Ok(Self {
                name,
                rules: Rules::Database(found),
            }),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_utc(&self) -> bool {
        matches!(self.rules, Rules::Fixed(0))
    }

    /// The one offset of this zone in milliseconds, when it has only one.
    pub(crate) fn fixed_offset(&self) -> Option<i64> {
        match &self.rules {
            Rules::Fixed(offset) => Some(*offset),
            Rules::Database(_) => None,
        }
    }

    /// Milliseconds to add to UTC at this instant.
    pub(crate) fn offset_at(&self, instant: i64) -> i64 {
        match &self.rules {
            Rules::Fixed(offset) => *offset,
            Rules::Database(zone) => i64::from(zone.to_offset(clamped(instant)).seconds()) * SECOND,
        }
    }

    /// The latest change of offset at or before this instant.
    pub(crate) fn change_at_or_before(&self, instant: i64) -> Option<i64> {
        let Rules::Database(zone) = &self.rules else {
            return None;
        };
        let after = clamped(instant.checked_add(1)?);
        zone.preceding(after)
            .next()
            .map(|change| change.timestamp().as_millisecond())
    }

    /// The first change of offset after this instant.
    pub(crate) fn change_after(&self, instant: i64) -> Option<i64> {
        let Rules::Database(zone) = &self.rules else {
            return None;
        };
        zone.following(clamped(instant))
            .next()
            .map(|change| change.timestamp().as_millisecond())
    }

    /// The instant of a local time given as milliseconds of a civil calendar. A local time that is skipped
    /// moves forward by the gap; one that happens twice is the first of the two.
    pub(crate) fn instant_of_local(&self, local: i64) -> Option<i64> {
        let zone = match &self.rules {
            Rules::Fixed(offset) => return local.checked_sub(*offset),
            Rules::Database(zone) => zone,
        };
        let known = Timestamp::from_millisecond(local)
            .ok()
            .and_then(|as_utc| zone.to_timestamp(TimeZone::UTC.to_datetime(as_utc)).ok());
        match known {
            Some(instant) => Some(instant.as_millisecond()),
            None => local.checked_sub(self.offset_at(local)),
        }
    }
}

/// The nearest instant for which the tz library has an answer.
fn clamped(instant: i64) -> Timestamp {
    let edge = if instant < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Timestamp::from_millisecond(instant).unwrap_or(edge)
}

/// `Z`, `±HH`, `±HHMM`, `±HH:MM`, `±HH:MM:SS` in milliseconds; `None` for anything else.
pub(crate) fn parse_offset(text: &[u8]) -> Option<i64> {
    if matches!(text, b"Z" | b"z") {
        return Some(0);
    }
    let (sign, digits) = match text.split_first()? {
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let two = |at: usize| -> Option<i64> {
        let pair = digits.get(at..at + 2)?;
        pair.iter()
            .all(u8::is_ascii_digit)
            .then(|| i64::from(pair[0] - b'0') * 10 + i64::from(pair[1] - b'0'))
    };
    let (hours, minutes, seconds) = match (digits.len(), digits.get(2), digits.get(5)) {
        (2, _, _) => (two(0)?, 0, 0),
        (4, _, _) => (two(0)?, two(2)?, 0),
        (5, Some(b':'), _) => (two(0)?, two(3)?, 0),
        (8, Some(b':'), Some(b':')) => (two(0)?, two(3)?, two(6)?),
        _ => return None,
    };
    (hours <= 23 && minutes <= 59 && seconds <= 59)
        .then(|| sign * (hours * HOUR + minutes * MINUTE + seconds * SECOND))
}

fn offset_name(offset: i64) -> String {
    if offset == 0 {
        return "UTC".to_owned();
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let size = offset.abs();
    let (hours, minutes, seconds) = (size / HOUR, size / MINUTE % 60, size / SECOND % 60);
    if seconds == 0 {
        format!("{sign}{hours:02}:{minutes:02}")
    } else {
        format!("{sign}{hours:02}:{minutes:02}:{seconds:02}")
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name)
    }
}
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for Zone {}
impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_names_are_read_and_nonsense_is_refused() {
        for (text, name) in [
            ("utc", "UTC"),
            ("Z", "UTC"),
            ("+00:00", "UTC"),
            ("america/new_york", "America/New_York"),
            ("+0530", "+05:30"),
            ("-08", "-08:00"),
            ("-00:00:30", "-00:00:30"),
        ] {
            assert_eq!(Zone::parse(text).unwrap().name(), name, "{text}");
        }
        for text in [
            "",
            "+",
            "+5",
            "+24:00",
            "+05:60",
            "Mars/Olympus",
            "+05:3x",
            &"x".repeat(70),
        ] {
            assert!(Zone::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_instant_beyond_the_known_years_still_has_an_offset() {
        let zone = Zone::parse("America/New_York").unwrap();
        assert_eq!(zone.offset_at(i64::MAX).rem_euclid(HOUR), 0);
        assert!(zone.instant_of_local(i64::MAX).is_none() || zone.offset_at(i64::MAX) > 0);
        assert_eq!(zone.change_after(i64::MAX), None);
    }
}
