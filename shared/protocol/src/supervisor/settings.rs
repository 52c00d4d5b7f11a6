//! What the machine knows of one version of a spec. Stored as it is with the supervisor, so that a later parser
//! cannot make a running supervisor unreadable.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_types::{DataSource, DecodeVersion, TimestampMillis};

use crate::task::Unknown;

/// Where partitions start that the supervisor never had before its first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstStart {
    Earliest,
    Latest,
}

/// What happens when committed offsets are no longer in the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLostData {
    /// The partitions stand still until somebody resets them.
    Stop,
    /// Go on from the earliest record; the ranges are recorded.
    Skip,
}

/// What becomes of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    Running,
    Suspended,
}

/// One version of a spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub data_source: DataSource,
    pub topic: String,
    /// The normalized spec, secrets included: what tasks are given.
    pub spec_json: String,
    /// Parts that go into the base sequence name.
    pub data_schema: Value,
    pub task_tuning: Value,
    /// Everything of the spec that a task or a group depends on: when it is equal in two versions, groups of the
    /// older one go on undisturbed (B51).
    pub task_view: Value,
    pub decode_version: DecodeVersion,
    pub run: Run,
    pub replicas: u32,
    pub task_count: u32,
    pub task_duration_millis: u64,
    pub start_delay_millis: u64,
    /// How often partitions and offsets are looked up.
    pub look_up_millis: u64,
    pub completion_timeout_millis: u64,
    pub first_start: FirstStart,
    pub late_message_rejection_millis: Option<u64>,
    pub late_message_rejection_start: Option<TimestampMillis>,
    pub early_message_rejection_millis: Option<u64>,
    pub on_lost_data: OnLostData,
    /// The one deadline of a round of pauses.
    pub round_millis: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Settings {
    /// The time bounds of a group made now: (minimum, maximum), both inclusive.
    pub fn message_times(&self, now: TimestampMillis) -> (Option<TimestampMillis>, Option<TimestampMillis>) {
        let late = self
            .late_message_rejection_millis
            .map(|late| later(now, -signed(late)));
        let early = self
            .early_message_rejection_millis
            .map(|early| later(later(now, signed(self.task_duration_millis)), signed(early)));
        (late.or(self.late_message_rejection_start), early)
    }
}

fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// `now` + `millis`, without overflow.
fn later(now: TimestampMillis, millis: i64) -> TimestampMillis {
    TimestampMillis(now.0.saturating_add(millis))
}

/// `now` + `millis`, without overflow.
pub(crate) fn after(now: TimestampMillis, millis: u64) -> TimestampMillis {
    later(now, signed(millis))
}
