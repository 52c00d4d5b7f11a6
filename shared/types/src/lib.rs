//! The words of the field as types: ids, offsets, intervals, granularity, time.
//!
//! Owns: the meaning of an offset (start inclusive, end exclusive, everywhere), of a segment id and of a
//! time bucket. Promises: no I/O, no clock, no randomness; every constructor checks its input.
//! Must never: know about Kafka clients, SQL, gRPC or files.

mod bucket_cache;
mod civil;
mod ids;
mod iso;
mod joda;
mod offsets;
mod segment;
mod zone;

pub mod granularity;
pub mod interval;
pub mod period;
pub mod time;
pub mod timestamp_parser;

pub use bucket_cache::{BucketCache, Placed, RowPlacer};
pub use granularity::{Granularity, GranularityError};
pub use ids::{
    AssignmentToken, BaseSequenceName, ClusterId, DataSource, DecodeVersion, Epoch, Generation, GroupId,
    InvalidId, RunnerId, SequenceId, SequenceName, SupervisorId, TaskId, TopicId,
};
pub use interval::Interval;
pub use joda::PatternError;
pub use offsets::{EndOffsets, Offset, OffsetRange, PartitionId, PartitionOffsets, StartOffsets};
pub use period::{IsoPeriod, PeriodError, format_period_millis, parse_period_millis};
pub use segment::{SegmentId, SegmentVersion};
pub use time::TimestampMillis;
pub use timestamp_parser::{TimestampError, TimestampParser};
pub use zone::{UnknownZone, Zone};
