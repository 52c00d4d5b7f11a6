//! The Kafka adapter: what the house asks of Kafka, and librdkafka behind it.
//!
//! Owns: the consumer threads, the look-ups (partitions, earliest and latest offsets, cluster and topic ids), the
//! translation of Java consumer properties, and the in-process mock broker of the quickstart.
//! Promises: partitions are assigned, never subscribed; no offset is ever committed to Kafka; a reader never jumps
//! backwards or over data by itself (`auto.offset.reset` is `error`); every call has a deadline; dropping or
//! closing anything here never blocks the caller longer than it said (B74).
//! Must never: decide what a lost range or a changed topic means (that is the protocol's), or log a secret.

mod admin;
mod batch;
mod client;
mod error;
mod features;
mod handover;
mod jaas;
mod mock;
mod partitions;
mod producer;
mod properties;
mod raw;
mod reader;
mod topic_id;
mod warm;
mod watchdog;
mod worker;

pub use admin::Admin;
pub use batch::{Batch, Record, TimestampKind};
pub use error::{KafkaError, PropertyError, Trouble, TroubleKind};
pub use features::{REQUIRED_FEATURES, check_features};
pub use mock::MockBroker;
pub use producer::{Compression, OutgoingRecord, Producer, ProducerSettings};
pub use properties::ConsumerProperties;
pub use reader::{Closed, Nudge, Reader, ReaderEvent, ReaderSettings};
pub use warm::Warm;
