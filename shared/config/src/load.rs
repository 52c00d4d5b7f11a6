//! From sources to typed settings.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{ConfigError, Problem, Source};
use crate::key::{Default, Key};
use crate::keys::{self, Table};
use crate::secret::MASK;
use crate::source::Sources;

/// Typed settings of one service: which tables it reads, and what must fit together.
pub trait Settings: DeserializeOwned {
    const TABLES: &'static [Table];

    /// What no single value can tell.
    fn check(&self) -> Vec<Problem> {
        Vec::new()
    }
}

/// Settings with a listing of where each value came from.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    pub settings: T,
    pub effective: Vec<Effective>,
}

/// One value in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective {
    pub key: &'static str,
    /// As it was written; stars for a secret, empty when absent.
    pub shown: String,
    pub origin: Source,
}

/// `key = value  (source)`, one a line: what `--check-config` prints.
impl<T> fmt::Display for Loaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.effective.iter().map(|one| one.key.len()).max().unwrap_or(0);
        for Effective { key, shown, origin } in &self.effective {
            let shown = if shown.is_empty() { "(absent)" } else { shown };
            writeln!(f, "{key:width$} = {shown}  ({origin})")?;
        }
        Ok(())
    }
}

/// Reads all sources and gives the settings, or everything that is wrong with them.
pub fn load<T: Settings>(sources: &Sources) -> Result<Loaded<T>, ConfigError> {
    let (said, mut problems) = sources.said();
    let mut chosen: BTreeMap<&'static str, (Result<String, String>, Source)> = BTreeMap::new();
    for one in said {
        match keys::ALL
            .iter()
            .flat_map(|table| table.keys)
            .find(|key| key.name == one.key)
        {
            Some(key) => {
                chosen.insert(key.name, (one.value, one.origin));
            }
            None => problems.push(Problem::UnknownKey {
                nearest: nearest(&one.key),
                key: one.key,
                origin: one.origin,
            }),
        }
    }
    let mut values = Map::new();
    let mut effective = Vec::new();
    for key in T::TABLES.iter().flat_map(|table| table.keys) {
        match resolve(key, chosen.remove(key.name)) {
            Ok((value, shown, origin)) => {
                effective.push(Effective {
                    key: key.name,
                    shown,
                    origin,
                });
                place(&mut values, key.name, value);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(ConfigError { problems });
    }
    let settings: T = serde_json::from_value(Value::Object(values)).map_err(|error| ConfigError {
        problems: vec![Problem::DoesNotFit {
            key: "the table of keys",
            what: error.to_string(),
        }],
    })?;
    let problems = settings.check();
    if problems.is_empty() {
        Ok(Loaded { settings, effective })
    } else {
        Err(ConfigError { problems })
    }
}

type Resolved = (Option<Value>, String, Source);

fn resolve(key: &Key, chosen: Option<(Result<String, String>, Source)>) -> Result<Resolved, Problem> {
    // An empty value of a key that may be absent means absent: compose files set variables to nothing.
    let chosen = chosen.filter(|(value, _)| key.default != Default::Absent || value.as_deref() != Ok(""));
    let (value, origin) = match (chosen, key.default) {
        (Some(chosen), _) => chosen,
        (None, Default::Is(value)) => (Ok(value.to_owned()), Source::Default),
        (None, Default::Absent) => return Ok((None, String::new(), Source::Default)),
        (None, Default::Required) => {
            return Err(Problem::Missing {
                key: key.name.to_owned(),
                variable: key.variable(),
            });
        }
    };
    let shown = match &value {
        _ if key.is_secret() => MASK.to_owned(),
        Ok(text) => text.clone(),
        Err(_) => "[…]".to_owned(),
    };
    match value.and_then(|text| key.kind.parse(&text)) {
        Ok(value) => Ok((Some(value), shown, origin)),
        Err(how) => Err(Problem::BadValue {
            key: key.name.to_owned(),
            origin,
            shown,
            how,
        }),
    }
}

/// Puts `section.name` into the object of its section, which is made also when no key of it is set.
fn place(values: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    let (inner, name) = match name.split_once('.') {
        None => (values, name),
        Some((section, rest)) => match values.entry(section).or_insert_with(|| Value::Object(Map::new())) {
            Value::Object(inner) => (inner, rest),
            _ => return,
        },
    };
    if let Some(value) = value {
        inner.insert(name.to_owned(), value);
    }
}

/// The known key that is most like `key`.
fn nearest(key: &str) -> String {
    let likeness = |known: &&Key| {
        // The whole name counts; a right name in a wrong section counts too.
        let whole = strsim::normalized_damerau_levenshtein(key, known.name);
        let name = |full: &str| full.rsplit('.').next().unwrap_or(full).to_owned();
        let last = 0.9 * strsim::normalized_damerau_levenshtein(&name(key), &name(known.name));
        whole.max(last)
    };
    let mut best = ("", 0.0);
    for known in keys::ALL.iter().flat_map(|table| table.keys) {
        let likeness = likeness(&known);
        if likeness > best.1 {
            best = (known.name, likeness);
        }
    }
    best.0.to_owned()
}
