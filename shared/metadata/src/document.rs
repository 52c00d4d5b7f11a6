//! Documents stored in SQL: an envelope with a format version around a JSON body.
//!
//! Promises: what a newer version wrote is either readable (its `oldest_reader` says so, unknown fields are kept
//! by whoever keeps the body) or refused by name; it is never guessed at.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A stored document. `body` keeps every field, known or not, so that writing it back loses nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Format that the writer used.
    pub format: u32,
    /// The oldest format whose readers may read this.
    pub oldest_reader: u32,
    /// The content.
    pub body: Value,
}

/// Why a stored document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    #[error(
        "the document is of format {format} and asks for a reader of format {oldest_reader} or newer; this one \
         reads up to {reads}: use the version that wrote it, or a newer one"
    )]
    TooNew {
        format: u32,
        oldest_reader: u32,
        reads: u32,
    },
    #[error("the document is not what it should be: {0}")]
    Malformed(String),
}

impl Document {
    /// Wraps a value; readers of any format from `oldest_reader` on may read it.
    pub fn of<T: Serialize>(format: u32, oldest_reader: u32, value: &T) -> Result<Self, DocumentError> {
        let body =
            serde_json::to_value(value).map_err(|error| DocumentError::Malformed(error.to_string()))?;
        Ok(Self {
            format,
            oldest_reader,
            body,
        })
    }

    /// The value, for a reader that knows formats up to `reads`.
    pub fn read<T: DeserializeOwned>(&self, reads: u32) -> Result<T, DocumentError> {
        if self.oldest_reader > reads {
            let Self {
                format,
                oldest_reader,
                ..
            } = *self;
            return Err(DocumentError::TooNew {
                format,
                oldest_reader,
                reads,
            });
        }
        serde_json::from_value(self.body.clone()).map_err(|error| DocumentError::Malformed(error.to_string()))
    }

    /// The text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The document in a stored text.
    pub fn from_text(text: &str) -> Result<Self, DocumentError> {
        serde_json::from_str(text).map_err(|error| DocumentError::Malformed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        name: String,
        #[serde(flatten)]
        more: serde_json::Map<String, Value>,
    }

    #[test]
    fn fields_of_a_newer_writer_survive_an_older_one() {
        let text = r#"{"format":7,"oldest_reader":1,"body":{"name":"a","invented_later":[1,2]}}"#;
        let mut old: Old = Document::from_text(text).unwrap().read(1).unwrap();
        old.name = "b".into();
        let again = Document::of(1, 1, &old).unwrap().to_text();
        assert!(again.contains(r#""invented_later":[1,2]"#), "{again}");
    }

    #[test]
    fn a_document_that_needs_a_newer_reader_is_refused_by_name() {
        let document = Document {
            format: 3,
            oldest_reader: 2,
            body: Value::Null,
        };
        assert_eq!(
            document.read::<Value>(1),
            Err(DocumentError::TooNew {
                format: 3,
                oldest_reader: 2,
                reads: 1
            })
        );
        assert_eq!(document.read::<Value>(2), Ok(Value::Null));
    }
}
