//! Real servers for tests: Apache Kafka, PostgreSQL, S3.
//!
//! Owns the child processes and temporary directories of the servers it starts. Promises that each listens on
//! loopback and a free port only, that `start` returns when the server really answers, and that child and
//! directory are gone when the handle is dropped, or when the process that holds it dies in whatever way.
//! Never skips: a server that cannot be had is an error that says what to install.
//!
//! An address in `TIDEGATE_TEST_KAFKA`, `TIDEGATE_TEST_POSTGRES` or `TIDEGATE_TEST_S3` is used in place of a
//! server of our own by `start` and `shared`; `start_own` (for tests that stop or kill their server) ignores it.
//! So tests that may share a server must take names of their own: [`unique_name`].

pub mod cache;
pub mod docker;
mod kafka;
mod kafka_probe;
mod ports;
mod postgres;
mod process;
mod s3;
mod s3_request;
pub mod tools;

pub use kafka::{Kafka, KafkaOptions};
pub use ports::free_port;
pub use postgres::Postgres;
pub use s3::S3;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bootstrap servers of a Kafka to use instead of starting one.
pub const KAFKA_ADDRESS: &str = "TIDEGATE_TEST_KAFKA";
/// URL of a PostgreSQL (a role that may create databases) to use instead of starting one.
pub const POSTGRES_ADDRESS: &str = "TIDEGATE_TEST_POSTGRES";
/// Endpoint of an S3 server (`http://host:port`) to use instead of starting one.
pub const S3_ADDRESS: &str = "TIDEGATE_TEST_S3";
/// Keys that go with [`S3_ADDRESS`]; those of our own servers when absent.
pub const S3_ACCESS_KEY: &str = "TIDEGATE_TEST_S3_ACCESS_KEY";
pub const S3_SECRET_KEY: &str = "TIDEGATE_TEST_S3_SECRET_KEY";

/// A name that no other test, process or run uses: `prefix-` and twelve hexadecimal digits.
/// Good as a topic and as a bucket (put `_` for `-` to use it as a database).
pub fn unique_name(prefix: &str) -> String {
    format!("{prefix}-{:012x}", random_bits() & 0xffff_ffff_ffff)
}

/// Random enough for names and ports: the standard library seeds each `RandomState` from the system.
pub(crate) fn random_bits() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed)))
}

fn address_from_environment(variable: &str) -> Option<String> {
    std::env::var(variable)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_names_differ_and_are_legal_buckets() {
        let names: std::collections::HashSet<String> = (0..1000).map(|_| unique_name("wiki")).collect();
        assert_eq!(names.len(), 1000);
        for name in names {
            assert_eq!(name.len(), "wiki-".len() + 12);
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            );
        }
    }
}
