//! The only clock of the service.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_types::TimestampMillis;

pub(crate) fn now() -> TimestampMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
