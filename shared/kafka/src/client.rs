//! The context of every librdkafka client: its log goes to `tracing`.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::{DeliveryResult, ProducerContext};
use tracing::{debug, error, info, warn};

/// Writes the client's log; holds nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level as i32, facility, message);
    }
    fn error(&self, error: KafkaError, reason: &str) {
        warn!(target: "tidegate_kafka::client", %error, reason, "the Kafka client reports an error");
    }
}

impl ConsumerContext for Quiet {}

impl ProducerContext for Quiet {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            warn!(target: "tidegate_kafka::client", %error, "a record was not delivered");
        }
    }
}

/// One line of librdkafka's log, with syslog's levels.
pub(crate) fn log(level: i32, facility: &str, message: &str) {
    match level {
        ..=3 => error!(target: "tidegate_kafka::client", facility, "{message}"),
        4 => warn!(target: "tidegate_kafka::client", facility, "{message}"),
        5 | 6 => info!(target: "tidegate_kafka::client", facility, "{message}"),
        _ => debug!(target: "tidegate_kafka::client", facility, "{message}"),
    }
}
