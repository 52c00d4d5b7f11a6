//! Java consumer properties, as a spec has them, turned into librdkafka's.
//!
//! Promises: every key that cannot be used is named, all at once; a secret is never shown, not even by `Debug`
//! (B68); nothing that loads code is let through; total prefetch is bounded (B70).

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;

use crate::error::{KafkaError, PropertyError};
use crate::jaas;

/// Consumer properties that librdkafka accepts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerProperties {
    settings: BTreeMap<String, String>,
    ignored: Vec<String>,
}

/// What the Java client needs and this one has no use for: rows are decoded by the spec, offsets are committed with
/// the segments, partitions are assigned.
const IGNORED: [&str; 20] = [
    "key.deserializer",
    "value.deserializer",
    "auto.offset.reset",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "max.poll.records",
    "max.poll.interval.ms",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "partition.assignment.strategy",
    "group.instance.id",
    "group.protocol",
    "default.api.timeout.ms",
    "exclude.internal.topics",
    "allow.auto.create.topics",
    "internal.leave.group.on.close",
    "metrics.recording.level",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.secure.random.implementation",
];

/// Same meaning, other name.
const RENAMED: [(&str, &str); 8] = [
    ("fetch.max.wait.ms", "fetch.wait.max.ms"),
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("request.timeout.ms", "socket.timeout.ms"),
    ("receive.buffer.bytes", "socket.receive.buffer.bytes"),
    ("send.buffer.bytes", "socket.send.buffer.bytes"),
    ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ("ssl.keystore.key", "ssl.key.pem"),
    ("ssl.truststore.certificates", "ssl.ca.pem"),
];

/// Ours alone, or dangerous in a spec that anybody may submit.
const REFUSED: [(&str, &str); 10] = [
    ("plugin.library.paths", "a spec cannot load code"),
    ("ssl.engine.location", "a spec cannot load code"),
    ("ssl.providers", "a spec cannot load code"),
    (
        "interceptor.classes",
        "Java classes cannot be loaded here; remove it",
    ),
    (
        "sasl.login.callback.handler.class",
        "Java classes cannot be loaded here; remove it",
    ),
    (
        "sasl.client.callback.handler.class",
        "Java classes cannot be loaded here; remove it",
    ),
    (
        "metric.reporters",
        "Java classes cannot be loaded here; remove it",
    ),
    (
        "druid.dynamic.config.provider",
        "is not supported; give the properties themselves",
    ),
    ("test.mock.num.brokers", "is for tests; remove it"),
    (
        "sasl.kerberos.service.name",
        "Kerberos is not in this build; use SCRAM, PLAIN or mutual TLS",
    ),
];

impl ConsumerProperties {
    /// Translates the properties of a spec. All unusable keys are reported at once.
    pub fn from_java<K, V>(properties: impl IntoIterator<Item = (K, V)>) -> Result<Self, KafkaError>
    where
        K: Into<String>,
        V: Into<String>,
    {
        let given: BTreeMap<String, String> = properties
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        let mut translation = Translation {
            given: &given,
            settings: BTreeMap::new(),
            ignored: Vec::new(),
            errors: Vec::new(),
        };
        for (key, value) in &given {
            translation.one(key, value);
        }
        let Translation {
            mut settings,
            ignored,
            mut errors,
            ..
        } = translation;
        if given
            .get("bootstrap.servers")
            .is_none_or(|servers| servers.trim().is_empty())
        {
            errors.push(PropertyError {
                key: "bootstrap.servers".into(),
                reason: "is missing; give host:port, several separated by commas".into(),
            });
        }
        if !errors.is_empty() {
            return Err(KafkaError::Properties(errors));
        }
        settings
            .entry("isolation.level".into())
            .or_insert_with(|| "read_committed".into());
        settings
            .entry("group.id".into())
            .or_insert_with(|| "tidegate".into());
        Ok(Self { settings, ignored })
    }

    /// The addresses, for messages.
    pub fn servers(&self) -> &str {
        self.settings.get("bootstrap.servers").map_or("", String::as_str)
    }

    /// True unless the spec asks for `read_uncommitted`.
    pub fn is_read_committed(&self) -> bool {
        self.settings
            .get("isolation.level")
            .is_none_or(|level| level == "read_committed")
    }

    /// Keys that were accepted and have no effect here.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// What a reader of at most `prefetch_bytes` needs on top.
    pub(crate) fn for_reader(&self, prefetch_bytes: usize) -> ClientConfig {
        let mut config = self.base();
        let prefetch = prefetch_bytes.max(64 * 1024);
        // One queue for all partitions, so this bounds them together (B70).
        self.at_most(
            &mut config,
            "queued.max.messages.kbytes",
            prefetch / 1024,
            prefetch / 1024,
        );
        let fetch = self.at_most(&mut config, "fetch.max.bytes", 16 * 1024 * 1024, prefetch / 2);
        self.at_most(&mut config, "fetch.message.max.bytes", 1024 * 1024, fetch);
        // The client wants it below `fetch.max.bytes`; larger records are read all the same, one at a time (B25).
        self.at_most(&mut config, "message.max.bytes", 1_000_000, fetch);
        // A full queue is looked at again soon: the default of a second would stall a fast reader.
        config.set("fetch.queue.backoff.ms", "10");
        config.set("enable.partition.eof", "true");
        config.set("auto.offset.reset", "error");
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("max.poll.interval.ms", "86400000");
        config
    }

    /// What the look-ups need: no group, so no queue to serve.
    pub(crate) fn for_admin(&self) -> ClientConfig {
        let mut config = self.base();
        config.remove("group.id");
        config
    }

    fn base(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (key, value) in &self.settings {
            config.set(key, value);
        }
        config.set("allow.auto.create.topics", "false");
        config.set("log.connection.close", "false");
        if !self.settings.contains_key("socket.keepalive.enable") {
            config.set("socket.keepalive.enable", "true");
        }
        config
    }

    fn at_most(&self, config: &mut ClientConfig, key: &str, default: usize, bound: usize) -> usize {
        let wanted = self
            .settings
            .get(key)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default);
        let value = usize::min(wanted, bound);
        config.set(key, value.to_string());
        value
    }
}

/// Keys and servers, never values: most of them may hold secrets.
impl fmt::Debug for ConsumerProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerProperties")
            .field("servers", &self.servers())
            .field("keys", &self.settings.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

struct Translation<'a> {
    given: &'a BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    ignored: Vec<String>,
    errors: Vec<PropertyError>,
}

impl Translation<'_> {
    fn one(&mut self, key: &str, value: &str) {
        if IGNORED.contains(&key) {
            self.ignored.push(key.into());
        } else if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == key) {
            self.refuse(key, *why);
        } else if let Some((_, name)) = RENAMED.iter().find(|(name, _)| *name == key) {
            self.set(key, name, value);
        } else {
            self.special(key, value);
        }
    }

    fn special(&mut self, key: &str, value: &str) {
        match key {
            "sasl.jaas.config" => match jaas::parse(value) {
                Ok(login) => {
                    self.set(key, "sasl.username", &login.username);
                    self.set(key, "sasl.password", &login.password);
                }
                Err(why) => self.refuse(key, why),
            },
            "sasl.mechanism" | "sasl.mechanisms" if value.eq_ignore_ascii_case("GSSAPI") => {
                self.refuse(
                    key,
                    "Kerberos is not in this build; use SCRAM-SHA-256, SCRAM-SHA-512, PLAIN or mutual TLS",
                );
            }
            "ssl.endpoint.identification.algorithm" if value.trim().is_empty() => self.set(key, key, "none"),
            "ssl.truststore.location" | "ssl.truststore.password" | "ssl.truststore.type" => {
                self.truststore(key, value);
            }
            "ssl.keystore.location" | "ssl.keystore.password" | "ssl.keystore.type" => {
                self.keystore(key, value);
            }
            _ => self.set(key, key, value),
        }
    }

    fn truststore(&mut self, key: &str, value: &str) {
        if self.store_is("ssl.truststore", "PEM", &[".pem", ".crt"]) {
            match key {
                "ssl.truststore.location" => self.set(key, "ssl.ca.location", value),
                _ => self.ignored.push(key.into()),
            }
        } else {
            self.refuse(
                key,
                "Java trust stores cannot be read; give the CA certificates as PEM in ssl.ca.location",
            );
        }
    }

    fn keystore(&mut self, key: &str, value: &str) {
        if self.store_is("ssl.keystore", "PKCS12", &[".p12", ".pfx"]) {
            match key {
                "ssl.keystore.type" => self.ignored.push(key.into()),
                _ => self.set(key, key, value),
            }
        } else {
            self.refuse(
                key,
                "Java key stores cannot be read; give PEM in ssl.certificate.location and ssl.key.location, or a \
                 PKCS#12 file with ssl.keystore.type=PKCS12",
            );
        }
    }

    fn store_is(&self, prefix: &str, kind: &str, endings: &[&str]) -> bool {
        match self.given.get(&format!("{prefix}.type")) {
            Some(given) => given.eq_ignore_ascii_case(kind),
            None => self.given.get(&format!("{prefix}.location")).is_some_and(|file| {
                endings
                    .iter()
                    .any(|ending| file.to_ascii_lowercase().ends_with(ending))
            }),
        }
    }

    /// Asks librdkafka itself whether it takes the pair, so that a typo is named when the spec is validated.
    fn set(&mut self, given_key: &str, key: &str, value: &str) {
        let mut probe = ClientConfig::new();
        probe.set(key, value);
        match probe.create_native_config() {
            Ok(_) => {
                self.settings.insert(key.into(), value.into());
            }
            // The reason of the library may repeat the value.
            Err(_) if is_secret(given_key) => self.refuse(given_key, "its value is not accepted"),
            Err(rdkafka::error::KafkaError::ClientConfig(_, reason, _, _)) => self.refuse(given_key, reason),
            Err(error) => self.refuse(given_key, error.to_string()),
        }
    }

    fn refuse(&mut self, key: &str, reason: impl Into<String>) {
        self.errors.push(PropertyError {
            key: key.into(),
            reason: reason.into(),
        });
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["password", "jaas", "secret", "pem", "ssl.keystore.key", "token"]
        .iter()
        .any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(pairs: &[(&str, &str)]) -> Vec<PropertyError> {
        match ConsumerProperties::from_java(pairs.iter().copied()) {
            Err(KafkaError::Properties(errors)) => errors,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn java_properties_become_librdkafka_properties() {
        let properties = ConsumerProperties::from_java([
            ("bootstrap.servers", "a:1,b:2"),
            (
                "key.deserializer",
                "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            ),
            ("max.partition.fetch.bytes", "2048"),
            ("fetch.max.wait.ms", "77"),
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            (
                "sasl.jaas.config",
                "org.x.ScramLoginModule required username=\"u\" password=\"p\";",
            ),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", "/etc/ca.pem"),
            ("ssl.endpoint.identification.algorithm", ""),
        ])
        .unwrap();
        let config = properties.for_reader(1 << 20);
        for (key, value) in [
            ("bootstrap.servers", "a:1,b:2"),
            ("fetch.message.max.bytes", "2048"),
            ("fetch.wait.max.ms", "77"),
            ("sasl.username", "u"),
            ("sasl.password", "p"),
            ("ssl.ca.location", "/etc/ca.pem"),
            ("ssl.endpoint.identification.algorithm", "none"),
            ("isolation.level", "read_committed"),
            ("auto.offset.reset", "error"),
            ("enable.auto.commit", "false"),
        ] {
            assert_eq!(config.get(key), Some(value), "{key}");
        }
        assert_eq!(properties.ignored(), ["key.deserializer", "ssl.truststore.type"]);
        assert!(properties.is_read_committed());
    }

    #[test]
    fn every_unusable_key_is_named_at_once() {
        let errors = errors(&[
            ("ssl.keystore.location", "/k.jks"),
            ("ssl.keystore.password", "hush"),
            ("plugin.library.paths", "/evil.so"),
            ("fetch.min.bytez", "1"),
            ("fetch.min.bytes", "many"),
            ("sasl.mechanism", "GSSAPI"),
        ]);
        let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "fetch.min.bytes",
                "fetch.min.bytez",
                "plugin.library.paths",
                "sasl.mechanism",
                "ssl.keystore.location",
                "ssl.keystore.password",
                "bootstrap.servers"
            ]
        );
        assert!(!format!("{errors:?}").contains("hush"));
    }

    #[test]
    fn b70_prefetch_is_bounded_whatever_the_spec_wants() {
        let properties = ConsumerProperties::from_java([
            ("bootstrap.servers", "a:1"),
            ("fetch.max.bytes", "1000000000"),
            ("max.partition.fetch.bytes", "900000000"),
            ("queued.max.messages.kbytes", "2000000"),
        ])
        .unwrap();
        let config = properties.for_reader(8 << 20);
        assert_eq!(config.get("queued.max.messages.kbytes"), Some("8192"));
        assert_eq!(config.get("fetch.max.bytes"), Some("4194304"));
        assert_eq!(config.get("fetch.message.max.bytes"), Some("4194304"));
    }

    #[test]
    fn b68_debug_shows_keys_and_no_values() {
        let properties =
            ConsumerProperties::from_java([("bootstrap.servers", "a:1"), ("sasl.password", "hush")]).unwrap();
        let shown = format!("{properties:?}");
        assert!(
            shown.contains("sasl.password") && !shown.contains("hush"),
            "{shown}"
        );
    }
}
