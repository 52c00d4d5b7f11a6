//! Where objects stand.
//!
//! ```text
//! staging/<task>/…                                             uploads that nothing refers to yet
//! segments/<data source>/<start>_<end>/<version>/<n>.parquet   what the catalog lists
//! ```

use tidegate_types::{SegmentId, TaskId, TimestampMillis};

use crate::key::{InvalidKey, Key};

/// Name of the folder that the sweep may touch; nothing else is ever swept.
pub const STAGING: &str = "staging";

/// The folder of a task's uploads; each upload gets a name of its own in it.
pub fn staging_folder(task: &TaskId) -> Result<Key, InvalidKey> {
    Key::parse(&format!("{STAGING}/{task}"))
}

/// True for a key that an upload gave.
pub fn is_staged(key: &Key) -> bool {
    key.as_str()
        .strip_prefix(STAGING)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Where a segment stands after it is published. Segment ids are never used again, so neither is the key.
pub fn final_key(id: &SegmentId) -> Result<Key, InvalidKey> {
    let interval = id.interval;
    Key::parse(&format!(
        "segments/{}/{}_{}/{}/{}.parquet",
        id.data_source,
        compact(interval.start()),
        compact(interval.end()),
        id.version.as_str().replace(':', ""),
        id.partition_num
    ))
}

/// An instant without colons, which some file systems and tools do not take: `2015-09-12T040000.000Z`.
fn compact(instant: TimestampMillis) -> String {
    instant.to_string().replace(':', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_types::{DataSource, Interval, SegmentVersion};

    #[test]
    fn a_published_segment_stands_under_its_data_source_interval_and_version() {
        let id = SegmentId {
            data_source: DataSource::new("Łódź a.b").unwrap(),
            interval: Interval::new(
                TimestampMillis(1_442_016_000_000),
                TimestampMillis(1_442_019_600_000),
            )
            .unwrap(),
            version: SegmentVersion::new("2026-01-02T03:04:05.678Z").unwrap(),
            partition_num: 7,
        };
        assert_eq!(
            final_key(&id).unwrap().as_str(),
            "segments/Łódź a.b/2015-09-12T000000.000Z_2015-09-12T010000.000Z/2026-01-02T030405.678Z/7.parquet"
        );
    }

    #[test]
    fn only_what_stands_in_the_staging_folder_is_staged() {
        assert!(is_staged(
            &staging_folder(&TaskId::new("t 1").unwrap())
                .unwrap()
                .child("x.parquet")
                .unwrap()
        ));
        for other in ["staging", "staging2/x", "segments/staging/x"] {
            assert!(!is_staged(&Key::parse(other).unwrap()), "{other}");
        }
    }
}
