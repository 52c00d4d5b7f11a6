//! Between wire messages and the words of the field. A message that lacks what it must have is a typed error
//! that names the field.

use tidegate_types::{
    ClusterId, DataSource, Interval, Offset, PartitionId, PartitionOffsets, SegmentId, SegmentVersion,
    TimestampMillis, TopicId,
};

use crate::status::RpcError;
use crate::types::v1 as wire;

/// A message without a field, or with a wrong one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field {field}: {reason}")]
pub struct BadField {
    pub field: &'static str,
    pub reason: String,
}

impl BadField {
    pub fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self {
            field,
            reason: reason.into(),
        }
    }
}

impl From<BadField> for RpcError {
    fn from(bad: BadField) -> Self {
        RpcError::InvalidArgument(bad.to_string(), vec![(bad.field.to_owned(), bad.reason)])
    }
}

impl From<BadField> for tonic::Status {
    fn from(bad: BadField) -> Self {
        RpcError::from(bad).into()
    }
}

/// The value of a field that must be there.
pub fn required<T>(field: &'static str, value: Option<T>) -> Result<T, BadField> {
    value.ok_or_else(|| BadField::new(field, "is required"))
}

/// A text id that must be there and usable.
pub fn id<T: std::str::FromStr<Err = tidegate_types::InvalidId>>(
    field: &'static str,
    text: &str,
) -> Result<T, BadField> {
    text.parse()
        .map_err(|error: tidegate_types::InvalidId| BadField::new(field, error.to_string()))
}

impl From<&PartitionOffsets> for wire::PartitionOffsets {
    fn from(offsets: &PartitionOffsets) -> Self {
        let offsets = offsets
            .iter()
            .map(|(partition, offset)| wire::PartitionOffset {
                partition: partition.0,
                offset: offset.0,
            })
            .collect();
        Self { offsets }
    }
}

impl TryFrom<&wire::PartitionOffsets> for PartitionOffsets {
    type Error = BadField;

    fn try_from(message: &wire::PartitionOffsets) -> Result<Self, BadField> {
        let mut offsets = PartitionOffsets::new();
        for pair in &message.offsets {
            if pair.partition < 0 || pair.offset < 0 {
                return Err(BadField::new(
                    "offsets",
                    "partitions and offsets are not negative",
                ));
            }
            if offsets.get(PartitionId(pair.partition)).is_some() {
                return Err(BadField::new(
                    "offsets",
                    format!("partition {} stands twice", pair.partition),
                ));
            }
            offsets.insert(PartitionId(pair.partition), Offset(pair.offset));
        }
        Ok(offsets)
    }
}

/// Offsets that must be there.
pub fn offsets(
    field: &'static str,
    message: Option<&wire::PartitionOffsets>,
) -> Result<PartitionOffsets, BadField> {
    PartitionOffsets::try_from(required(field, message)?).map_err(|bad| BadField::new(field, bad.reason))
}

/// Offsets that may be absent.
pub fn optional_offsets(
    field: &'static str,
    message: Option<&wire::PartitionOffsets>,
) -> Result<Option<PartitionOffsets>, BadField> {
    message.map(|message| offsets(field, Some(message))).transpose()
}

impl From<Interval> for wire::Interval {
    fn from(interval: Interval) -> Self {
        Self {
            start_millis: interval.start().0,
            end_millis: interval.end().0,
        }
    }
}

impl TryFrom<&wire::Interval> for Interval {
    type Error = BadField;

    fn try_from(message: &wire::Interval) -> Result<Self, BadField> {
        Interval::new(
            TimestampMillis(message.start_millis),
            TimestampMillis(message.end_millis),
        )
        .ok_or_else(|| BadField::new("interval", "it is empty or backwards"))
    }
}

impl From<&SegmentId> for wire::SegmentId {
    fn from(id: &SegmentId) -> Self {
        Self {
            data_source: id.data_source.to_string(),
            interval: Some(id.interval.into()),
            version: id.version.to_string(),
            partition_num: id.partition_num,
        }
    }
}

impl TryFrom<&wire::SegmentId> for SegmentId {
    type Error = BadField;

    fn try_from(message: &wire::SegmentId) -> Result<Self, BadField> {
        Ok(Self {
            data_source: id::<DataSource>("data_source", &message.data_source)?,
            interval: Interval::try_from(&required("interval", message.interval)?)?,
            version: SegmentVersion::new(message.version.clone())
                .map_err(|error| BadField::new("version", error.to_string()))?,
            partition_num: message.partition_num,
        })
    }
}

impl wire::Stream {
    /// The cluster id as a type.
    pub fn cluster(&self) -> ClusterId {
        ClusterId(self.cluster_id.clone())
    }
    /// The topic id as a type.
    pub fn incarnation(&self) -> TopicId {
        TopicId(self.topic_id.clone())
    }
}

impl wire::RowCounts {
    /// Adds another range's counts to these.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.stored += other.stored;
        self.rejected += other.rejected;
        self.unparseable += other.unparseable;
        self.filtered += other.filtered;
        self.tombstones += other.tombstones;
        self.empty += other.empty;
        self.oversized += other.oversized;
        self.bytes += other.bytes;
    }
    /// Records of all outcomes together.
    pub fn records(&self) -> u64 {
        self.accepted
            + self.rejected
            + self.unparseable
            + self.filtered
            + self.tombstones
            + self.empty
            + self.oversized
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_stands_twice_is_refused_by_name() {
        let pair = wire::PartitionOffset {
            partition: 3,
            offset: 1,
        };
        let message = wire::PartitionOffsets {
            offsets: vec![pair, pair],
        };
        assert_eq!(
            offsets("start", Some(&message)).unwrap_err().to_string(),
            "field start: partition 3 stands twice"
        );
        assert_eq!(
            offsets("start", None).unwrap_err().to_string(),
            "field start: is required"
        );
    }
}
