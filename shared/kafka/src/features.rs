//! What this build of librdkafka can decode, asserted at start rather than met in a topic (B15).

use rdkafka::ClientConfig;

use crate::error::KafkaError;

/// Without these some topics could not be read. `gzip` is zlib's name here.
pub const REQUIRED_FEATURES: [&str; 5] = ["gzip", "snappy", "lz4", "zstd", "ssl"];

/// Fails, naming what is missing, when this build cannot read every codec or lacks TLS.
pub fn check_features() -> Result<(), KafkaError> {
    require(&builtin_features()?)
}

fn builtin_features() -> Result<String, KafkaError> {
    ClientConfig::new()
        .create_native_config()
        .and_then(|config| config.get("builtin.features"))
        .map_err(|error| KafkaError::Client {
            what: "reading the client's features".into(),
            detail: error.to_string(),
        })
}

fn require(features: &str) -> Result<(), KafkaError> {
    let have: Vec<&str> = features.trim_matches('\0').split(',').map(str::trim).collect();
    let missing: Vec<&str> = REQUIRED_FEATURES
        .into_iter()
        .filter(|name| !have.contains(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(KafkaError::MissingFeature {
        missing: missing.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b15_this_build_reads_every_codec_and_tls() {
        check_features().unwrap();
    }

    #[test]
    fn b15_a_missing_codec_is_named() {
        let error = require("gzip,snappy,ssl,regex").unwrap_err().to_string();
        assert!(error.contains("lz4, zstd"), "{error}");
    }
}
