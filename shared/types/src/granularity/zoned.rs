//! Buckets in a zone whose offset changes.

use super::{FIRST_MONDAY, PeriodGranularity, Step};
use crate::civil::{DAY, civil_from_days, days_from_civil, days_in_month};
use crate::zone::Zone;

impl PeriodGranularity {
    /// Start and end of the bucket that holds `at`; `None` on overflow.
    pub(super) fn bucket(&self, at: i64) -> Option<(i64, i64)> {
        match self.step {
            Step::Months(months) => self.calendar_bucket(at, Grid::Months(months)),
            Step::Weeks(weeks) => self.calendar_bucket(at, Grid::Days(weeks * 7)),
            Step::Days(days) => self.calendar_bucket(at, Grid::Days(days)),
            Step::Millis(millis) => clock_bucket(&self.zone, millis, at),
        }
    }

    /// The origin on the local clock: midnight of 1970-01-01 (a Monday for single weeks) unless given.
    fn local_origin(&self) -> Option<i64> {
        match (self.origin, self.step) {
            (Some(origin), _) => origin.0.checked_add(self.zone.offset_at(origin.0)),
            (None, Step::Weeks(1)) => Some(FIRST_MONDAY * DAY),
            (None, _) => Some(0),
        }
    }

    /// Days, weeks, months: borders are local times, each turned into its instant.
    fn calendar_bucket(&self, at: i64, grid: Grid) -> Option<(i64, i64)> {
        let origin = self.local_origin()?;
        let border = |index: i64| self.zone.instant_of_local(grid.local(origin, index)?);
        let local = at.checked_add(self.zone.offset_at(at))?;
        let mut index = grid.index(origin, local);
        // The estimate is off by one or two where the local calendar jumps or repeats itself.
        while border(index)? > at {
            index -= 1;
        }
        while border(index + 1)? <= at {
            index += 1;
        }
        Some((border(index)?, border(index + 1)?))
    }
}

/// Local times that are borders, numbered from the origin.
#[derive(Clone, Copy)]
enum Grid {
    Days(i64),
    Months(i64),
}

impl Grid {
    fn local(self, origin: i64, index: i64) -> Option<i64> {
        match self {
            Self::Days(days) => days.checked_mul(index)?.checked_mul(DAY)?.checked_add(origin),
            Self::Months(months) => {
                let (year, month, day) = civil_from_days(origin.div_euclid(DAY));
                let total = (year * 12 + month - 1).checked_add(months.checked_mul(index)?)?;
                let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
                // An origin on the 31st is the last day of shorter months.
                let day = day.min(days_in_month(year, month));
                days_from_civil(year, month, day)
                    .checked_mul(DAY)?
                    .checked_add(origin.rem_euclid(DAY))
            }
        }
    }

    /// About where a local time lies.
    fn index(self, origin: i64, local: i64) -> i64 {
        match self {
            Self::Days(days) => local.saturating_sub(origin).div_euclid(days * DAY),
            Self::Months(months) => {
                let month_of = |millis: i64| {
                    let (year, month, _) = civil_from_days(millis.div_euclid(DAY));
                    year * 12 + month
                };
                (month_of(local) - month_of(origin)).div_euclid(months)
            }
        }
    }
}

/// Hours and less: a border is every instant at which the local clock shows a multiple of `length` since
/// 1970-01-01T00:00 local.
fn clock_bucket(zone: &Zone, length: i64, at: i64) -> Option<(i64, i64)> {
    let into = |instant: i64| Some(instant.checked_add(zone.offset_at(instant))?.rem_euclid(length));
    let mut probe = at;
    let start = loop {
        let candidate = probe.checked_sub(into(probe)?)?;
        match zone.change_at_or_before(probe) {
            // The candidate is reckoned with an offset that was not yet in force then.
            Some(change) if candidate < change => probe = change - 1,
            _ => break candidate,
        }
    };
    let mut probe = at;
    let end = loop {
        let candidate = probe.checked_sub(into(probe)?)?.checked_add(length)?;
        match zone.change_after(probe) {
            Some(change) if change <= candidate => {
                if into(change)? == 0 {
                    break change;
                }
                probe = change;
            }
            _ => break candidate,
        }
    };
    Some((start, end))
}
