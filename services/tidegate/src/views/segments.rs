//! Segments of the catalog.

use serde::Serialize;
use tidegate_rpc::coordinator::v1::SegmentInfo;
use tidegate_types::TimestampMillis;

use crate::report::{Show, grouped, instant, table};

#[derive(Debug, Serialize)]
struct SegmentView {
    data_source: String,
    interval: String,
    version: String,
    partition_num: u32,
    sequence: String,
    supervisor: String,
    rows: u64,
    input_rows: u64,
    bytes: u64,
    sha256: String,
    key: String,
    published_at: String,
    handed_off: bool,
    used: bool,
}

impl From<SegmentInfo> for SegmentView {
    fn from(info: SegmentInfo) -> Self {
        let segment = info.segment.unwrap_or_default();
        let id = segment.id.unwrap_or_default();
        let interval = id.interval.unwrap_or_default();
        Self {
            data_source: id.data_source,
            interval: format!(
                "{}/{}",
                TimestampMillis(interval.start_millis),
                TimestampMillis(interval.end_millis)
            ),
            version: id.version,
            partition_num: id.partition_num,
            sequence: segment.sequence_name,
            supervisor: info.supervisor_id,
            rows: segment.rows,
            input_rows: segment.input_rows,
            bytes: segment.size_bytes,
            sha256: segment.sha256,
            key: segment.key,
            published_at: instant(info.published_at_millis),
            handed_off: info.handed_off,
            used: info.used,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct SegmentsView {
    segments: Vec<SegmentView>,
}

impl From<Vec<SegmentInfo>> for SegmentsView {
    fn from(segments: Vec<SegmentInfo>) -> Self {
        Self {
            segments: segments.into_iter().map(Into::into).collect(),
        }
    }
}

impl Show for SegmentsView {
    fn show(&self) -> String {
        let rows = self
            .segments
            .iter()
            .map(|segment| {
                vec![
                    segment.data_source.clone(),
                    segment.interval.clone(),
                    segment.version.clone(),
                    segment.partition_num.to_string(),
                    grouped(segment.rows),
                    grouped(segment.bytes),
                    if segment.handed_off {
                        "yes".into()
                    } else {
                        "no".into()
                    },
                    segment.key.clone(),
                ]
            })
            .collect();
        let heading = [
            "data source",
            "interval",
            "version",
            "#",
            "rows",
            "bytes",
            "handed off",
            "object",
        ];
        table(&heading, rows, "no segments")
    }
}
