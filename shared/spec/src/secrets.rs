//! Secrets of a spec: which values they are, how they are referred to, masked, and brought back (B68).
//!
//! Promises: a value under a name that sounds like a secret is never shown; references (`${env:NAME}`,
//! `${file:/path}`) are no secrets and are shown as they are; a spec that was read masked and submitted again
//! unchanged is equal to the stored one. Must never: put a secret into an error.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::model::{IoConfig, SupervisorSpec};

/// What is shown instead of a secret.
pub const MASK: &str = "******";

/// Parts of names whose values are secrets.
const SECRET_NAMES: [&str; 17] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "jaas",
    "token",
    "credential",
    "private",
    "key.pem",
    "ssl.key",
    "keystore.key",
    "api.key",
    "apikey",
    "access.key",
    "accesskey",
    "basic.auth",
    "authorization",
];
/// The value holds credentials although the name does not sound like it.
const SECRET_EXACT: [&str; 2] = ["sasl.oauthbearer.config", "user.info"];
/// Names that end so say where something is, and are no secret.
const PLACES: [&str; 2] = ["location", "endpoint.url"];

/// True when the value under this name must not be shown.
pub fn is_secret_name(name: &str) -> bool {
    let folded = name.to_ascii_lowercase().replace(['_', '-'], ".");
    let is_place = PLACES.iter().any(|end| folded.ends_with(end));
    SECRET_EXACT.contains(&folded.as_str())
        || (!is_place && SECRET_NAMES.iter().any(|part| folded.contains(part)))
}

/// Masks every secret in a JSON document, in place, at any depth.
pub fn mask_secrets(document: &mut Value) {
    match document {
        Value::Object(entries) => {
            for (name, value) in entries.iter_mut() {
                match value {
                    Value::Object(_) | Value::Array(_) if !is_secret_name(name) => mask_secrets(value),
                    // A reference says where the secret is, not what it is.
                    Value::Object(_) if Reference::from_json(value).is_ok() => {}
                    Value::Null => {}
                    Value::String(text) => {
                        if let Some(masked) = masked_text(name, text) {
                            *text = masked;
                        }
                    }
                    _ if is_secret_name(name) => *value = Value::String(MASK.to_owned()),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_secrets),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The text to show instead, when it must not be shown as it is.
fn masked_text(name: &str, text: &str) -> Option<String> {
    if is_secret_name(name) {
        return (Reference::parse(text).is_none() && !text.is_empty()).then(|| MASK.to_owned());
    }
    // `scheme://user:password@host`
    let (scheme, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (login, _) = authority.rsplit_once('@')?;
    let (user, _) = login.split_once(':')?;
    Some(format!("{scheme}://{user}:{MASK}{}", &rest[login.len()..]))
}

/// Where a secret is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An environment variable of the process that needs it.
    Environment(String),
    /// A file on the machine of that process; a newline at its end does not count.
    File(String),
}

/// Why a reference is no reference, or could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error(
        "must be a text, a number, a boolean, {{\"type\": \"environment\", \"variable\": \"NAME\"}} or {{\"type\": \"file\", \"path\": \"/run/secrets/name\"}}"
    )]
    NotAReference,
    #[error(
        "`{property}` refers to the environment variable {variable}, which is not set; set it for this process"
    )]
    NotSet { property: String, variable: String },
    #[error("`{property}` refers to the file {path}, which cannot be read: {source}")]
    Unreadable {
        property: String,
        path: String,
        source: std::io::Error,
    },
}

impl Reference {
    /// `{"type": "environment", "variable": …}` or `{"type": "file", "path": …}`.
    pub fn from_json(document: &Value) -> Result<Self, ReferenceError> {
        let fields = document.as_object().ok_or(ReferenceError::NotAReference)?;
        let text = |name: &str| {
            fields
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| is_nameable(text))
        };
        let kind = text("type").map(str::to_ascii_lowercase);
        let reference = match kind.as_deref() {
            Some("environment") => text("variable").map(|name| Self::Environment(name.to_owned())),
            Some("file") => text("path").map(|path| Self::File(path.to_owned())),
            _ => None,
        };
        reference
            .filter(|_| fields.len() == 2)
            .ok_or(ReferenceError::NotAReference)
    }

    /// `${env:NAME}` or `${file:/path}`.
    pub fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix("${")?.strip_suffix('}')?;
        let (kind, place) = inner.split_once(':')?;
        match kind {
            _ if !is_nameable(place) => None,
            "env" => Some(Self::Environment(place.to_owned())),
            "file" => Some(Self::File(place.to_owned())),
            _ => None,
        }
    }
}

fn is_nameable(text: &str) -> bool {
    !text.is_empty() && !text.contains(['}', '\0'])
}

/// The text that is kept in a spec.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "${{env:{name}}}"),
            Self::File(path) => write!(f, "${{file:{path}}}"),
        }
    }
}

/// Consumer properties with every reference followed; for the process that connects, right before it does.
pub fn resolve_properties(
    properties: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ReferenceError> {
    let resolve = |(name, value): (&String, &String)| {
        let resolved = match Reference::parse(value) {
            None => value.clone(),
            Some(Reference::Environment(variable)) => {
                std::env::var(&variable).map_err(|_| ReferenceError::NotSet {
                    property: name.clone(),
                    variable,
                })?
            }
            Some(Reference::File(path)) => match std::fs::read_to_string(&path) {
                Ok(text) => text.trim_end_matches(['\n', '\r']).to_owned(),
                Err(source) => {
                    return Err(ReferenceError::Unreadable {
                        property: name.clone(),
                        path,
                        source,
                    });
                }
            },
        };
        Ok((name.clone(), resolved))
    };
    properties.iter().map(resolve).collect()
}

impl SupervisorSpec {
    /// Brings back the secrets of the stored spec where this one has only their mask: what Get returned can be
    /// submitted again. Gives the names of properties that are masked and unknown to the stored spec.
    pub fn restore_secrets(&mut self, stored: Option<&Self>) -> Result<(), Vec<String>> {
        let mut unknown = Vec::new();
        for (name, value) in &mut self.io.consumer_properties {
            let known = stored.and_then(|stored| stored.io.consumer_properties.get(name));
            let shown = known.map(|known| masked_text(name, known).unwrap_or_else(|| known.clone()));
            match known {
                Some(known) if shown.as_ref() == Some(value) => value.clone_from(known),
                _ if value.contains(MASK) => unknown.push(name.clone()),
                _ => {}
            }
        }
        if unknown.is_empty() { Ok(()) } else { Err(unknown) }
    }
}

/// A spec that gets into a log does not take its secrets there.
impl fmt::Debug for IoConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            topic,
            consumer_properties,
            input_format,
            poll_timeout_millis,
            replicas,
            task_count,
            task_duration_millis,
            start_delay_millis,
            period_millis,
            completion_timeout_millis,
            use_earliest_offset,
            late_message_rejection_millis,
            late_message_rejection_start,
            early_message_rejection_millis,
        } = self;
        let shown: BTreeMap<&String, String> = consumer_properties
            .iter()
            .map(|(name, value)| (name, masked_text(name, value).unwrap_or_else(|| value.clone())))
            .collect();
        f.debug_struct("IoConfig")
            .field("topic", topic)
            .field("consumer_properties", &shown)
            .field("input_format", input_format)
            .field("poll_timeout_millis", poll_timeout_millis)
            .field("replicas", replicas)
            .field("task_count", task_count)
            .field("task_duration_millis", task_duration_millis)
            .field("start_delay_millis", start_delay_millis)
            .field("period_millis", period_millis)
            .field("completion_timeout_millis", completion_timeout_millis)
            .field("use_earliest_offset", use_earliest_offset)
            .field("late_message_rejection_millis", late_message_rejection_millis)
            .field("late_message_rejection_start", late_message_rejection_start)
            .field("early_message_rejection_millis", early_message_rejection_millis)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// B68: masked wherever a spec is shown.
    #[test]
    fn b68_values_under_secret_names_are_masked_at_any_depth() {
        for name in [
            "sasl.password",
            "ssl.keystore.password",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.keystore.key",
            "sasl.jaas.config",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "basic.auth.user.info",
            "aws_secret_access_key",
            "accessKey",
            "AUTHORIZATION",
            "api-key",
            "db_passwd",
        ] {
            assert!(is_secret_name(name), "{name}");
            let mut document = json!({"a": [{name: "marker", "topic": "t"}]});
            mask_secrets(&mut document);
            assert_eq!(document, json!({"a": [{name: MASK, "topic": "t"}]}));
            let mut nested = json!({name: {"x": "marker"}});
            mask_secrets(&mut nested);
            assert!(!nested.to_string().contains("marker"), "{name}");
        }
        for name in [
            "bootstrap.servers",
            "group.id",
            "ssl.ca.location",
            "ssl.key.location",
            "sasl.username",
            "sasl.oauthbearer.token.endpoint.url",
            "keyColumnName",
            "topic",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_masked_and_the_rest_stays() {
        let mut document =
            json!({"url": "https://me:marker@registry:8081/x?y", "servers": "a:1,b:2", "at": "x@y"});
        mask_secrets(&mut document);
        assert_eq!(
            document,
            json!({"url": format!("https://me:{MASK}@registry:8081/x?y"), "servers": "a:1,b:2", "at": "x@y"})
        );
    }

    #[test]
    fn a_reference_is_kept_shown_and_followed() {
        let reference = json!({"type": "Environment", "variable": "TIDEGATE_TEST_NO_SUCH_VARIABLE"});
        let text = Reference::from_json(&reference).unwrap().to_string();
        assert_eq!(text, "${env:TIDEGATE_TEST_NO_SUCH_VARIABLE}");
        let mut document = json!({"sasl.password": text, "ssl.key.pem": reference});
        let before = document.clone();
        mask_secrets(&mut document);
        assert_eq!(document, before);

        let file = tempfile_with("hidden\n");
        let path = file.to_string_lossy().into_owned();
        let properties = BTreeMap::from([
            ("sasl.password".to_owned(), format!("${{file:{path}}}")),
            ("client.id".to_owned(), "$x".to_owned()),
        ]);
        let resolved = resolve_properties(&properties).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(resolved["sasl.password"], "hidden");
        assert_eq!(resolved["client.id"], "$x");
        let gone = resolve_properties(&properties).unwrap_err().to_string();
        assert!(gone.contains("sasl.password") && gone.contains(&path), "{gone}");
        let unset = BTreeMap::from([("sasl.password".to_owned(), text)]);
        assert!(
            resolve_properties(&unset)
                .unwrap_err()
                .to_string()
                .contains("TIDEGATE_TEST_NO_SUCH_VARIABLE")
        );
    }

    fn tempfile_with(text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-spec-secret-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for document in [
            json!({}),
            json!({"type": "environment"}),
            json!({"type": "environment", "variable": ""}),
            json!({"type": "environment", "variable": "X", "more": 1}),
            json!({"type": "vault", "path": "x"}),
            json!({"type": "file", "path": 5}),
            json!("x"),
        ] {
            assert!(Reference::from_json(&document).is_err(), "{document}");
        }
        for text in ["", "${", "${}", "${env:}", "${vault:x}", "env:x", "${env:a}b}"] {
            assert_eq!(Reference::parse(text), None, "{text}");
        }
    }
}
