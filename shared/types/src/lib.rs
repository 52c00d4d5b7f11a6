//! The words of the field as types: ids, offsets, intervals, granularity, time.
//!
//! Owns: the meaning of an offset (start inclusive, end exclusive, everywhere), of a segment id and of a
//! time bucket. Promises: no I/O, no clock, no randomness; every constructor checks its input.
//! Must never: know about Kafka clients, SQL, gRPC or files.

mod ids;
mod offsets;
mod segment;

pub mod granularity;
pub mod interval;
pub mod time;

pub use granularity::Granularity;
pub use ids::{
    AssignmentToken, BaseSequenceName, ClusterId, DataSource, DecodeVersion, Epoch, Generation, GroupId,
    InvalidId, RunnerId, SequenceId, SequenceName, SupervisorId, TaskId, TopicId,
};
pub use interval::Interval;
pub use offsets::{EndOffsets, Offset, OffsetRange, PartitionId, PartitionOffsets, StartOffsets};
pub use segment::{SegmentId, SegmentVersion};
pub use time::TimestampMillis;
