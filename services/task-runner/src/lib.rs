//! The task-runner service: reads Kafka, builds segments, publishes them through the publisher.
