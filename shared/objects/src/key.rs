//! Names of objects.

use std::fmt;

use object_store::path::Path;

/// Name of an object below the store's root: the text as it is stored in the catalog, sent in RPCs and shown to
/// people, and as it stands in the bucket or folder. Nothing is percent-encoded: `Łódź`, `a b` and
/// `app.db.settings` stay as they are, on every store.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Path);

/// Why a text cannot be a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not usable as an object key: {reason}")]
pub struct InvalidKey {
    pub text: String,
    pub reason: String,
}

impl Key {
    /// Reads a key as it was printed. Refuses empty parts, `.` and `..`, control characters, and what a local
    /// folder cannot hold.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let refuse = |reason: &str| {
            Err(InvalidKey {
                text: text.to_owned(),
                reason: reason.to_owned(),
            })
        };
        if text.is_empty() {
            return refuse("it is empty");
        }
        if text.starts_with('/') || text.ends_with('/') {
            return refuse("it begins or ends with a slash");
        }
        if text.chars().any(char::is_control) || text.contains('\\') {
            return refuse("it has a control character or a backslash");
        }
        if text.split('/').any(|part| part.len() > 255) {
            return refuse("a part of it is longer than 255 bytes");
        }
        if text.len() > 1024 {
            return refuse("it is longer than 1024 bytes");
        }
        match Path::parse(text) {
            Ok(path) => Ok(Self(path)),
            Err(error) => refuse(&error.to_string()),
        }
    }

    /// A key below this one.
    pub fn child(&self, name: &str) -> Result<Self, InvalidKey> {
        Self::parse(&format!("{self}/{name}"))
    }

    pub fn as_str(&self) -> &str {
        self.0.as_ref()
    }

    /// True for a key below `folder`.
    pub fn is_below(&self, folder: &Key) -> bool {
        self.0
            .prefix_match(&folder.0)
            .is_some_and(|mut rest| rest.next().is_some())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn from_listing(path: Path) -> Self {
        Self(path)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl std::str::FromStr for Key {
    type Err = InvalidKey;
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_text_that_it_was_made_from() {
        for text in [
            "Łódź/app.db.settings/a b/0.parquet",
            "100%/x#1.parquet",
            "a%20b",
            "ünï/…/~",
        ] {
            assert_eq!(Key::parse(text).unwrap().as_str(), text);
            assert_eq!(
                Key::parse(Key::parse(text).unwrap().as_str())
                    .unwrap()
                    .to_string(),
                text
            );
        }
    }

    #[test]
    fn a_key_that_leaves_its_root_is_refused() {
        for text in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            "a/../b",
            ".",
            "a/.",
            "a\nb",
            "a\\b",
            &"x".repeat(256),
        ] {
            assert!(Key::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn below_means_whole_parts() {
        let folder = Key::parse("staging").unwrap();
        assert!(Key::parse("staging/a").unwrap().is_below(&folder));
        assert!(!Key::parse("staging2/a").unwrap().is_below(&folder));
        assert!(!folder.is_below(&folder));
    }
}
