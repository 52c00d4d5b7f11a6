//! Real servers for tests: Apache Kafka, PostgreSQL, S3. Each starts on loopback and a free port and stops with its handle.
