//! The Kafka adapter: assigned consumer on its own thread, offset look-ups, property translation, the in-process mock cluster.
