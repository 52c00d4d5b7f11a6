//! What can fail, on what, and what to do about it.

use std::fmt;
use std::time::Duration;

use tidegate_types::PartitionId;

/// A consumer property that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct PropertyError {
    /// The key as the user wrote it.
    pub key: String,
    /// What is wrong and what would be right; never the value of a secret (B68).
    pub reason: String,
}

/// A call of this crate that failed.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    #[error("consumer properties cannot be used: {}", list(.0))]
    Properties(Vec<PropertyError>),
    #[error(
        "this build of librdkafka lacks {missing}; it reads no topic that needs it: build with the features that \
         Cargo.toml names"
    )]
    MissingFeature { missing: String },
    #[error("{what} failed: {detail}; check bootstrap.servers and the security properties")]
    Client { what: String, detail: String },
    #[error(
        "{what} of topic {topic:?} got no answer from {servers} within {waited:?} ({detail}); check that the broker \
         is up and reachable"
    )]
    NoAnswer {
        what: &'static str,
        topic: String,
        servers: String,
        waited: Duration,
        detail: String,
    },
    #[error("topic {topic:?} does not exist on {servers}; create it, or correct ioConfig.topic")]
    UnknownTopic { topic: String, servers: String },
    #[error("topic {topic:?} has no partition {partition} (on {servers})")]
    UnknownPartition {
        topic: String,
        partition: PartitionId,
        servers: String,
    },
    #[error("record for partition {partition} of topic {topic:?} was not produced: {detail}")]
    Produce {
        topic: String,
        partition: PartitionId,
        detail: String,
    },
}

fn list(errors: &[PropertyError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Something that a reader met and goes on after, unless it is fatal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// Partition concerned; `None` = the connection as a whole.
    pub partition: Option<PartitionId>,
    /// librdkafka's words.
    pub detail: String,
}

/// What kind of trouble, told apart by what a person has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// No broker answers; the reader keeps trying.
    BrokersUnreachable,
    /// Credentials or certificates are refused; the reader keeps trying, since they get fixed.
    Authentication,
    /// The broker forbids reading this topic.
    Authorization,
    /// The topic or the partition is not there (any more).
    UnknownTopic,
    /// A batch cannot be decompressed or its checksum is wrong.
    Corrupt,
    /// The client library gave up for good: the reader must be made anew.
    Fatal,
    /// Anything else; the reader keeps trying.
    Other,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            TroubleKind::BrokersUnreachable => "no broker can be reached (still trying)",
            TroubleKind::Authentication => {
                "the broker refuses the credentials; correct the security properties"
            }
            TroubleKind::Authorization => "the broker forbids reading this topic; grant READ and DESCRIBE",
            TroubleKind::UnknownTopic => "the topic or partition is not there",
            TroubleKind::Corrupt => {
                "a batch of records cannot be decoded; check the topic with the broker's tools"
            }
            TroubleKind::Fatal => "the Kafka client gave up",
            TroubleKind::Other => "the Kafka client reports",
        };
        match self.partition {
            Some(partition) => write!(f, "partition {partition}: {what}: {}", self.detail),
            None => write!(f, "{what}: {}", self.detail),
        }
    }
}
