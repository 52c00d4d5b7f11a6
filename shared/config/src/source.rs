//! Where settings come from.

use std::path::{Path, PathBuf};

use crate::error::{Problem, Source};
use crate::key::PREFIX;

/// The places that settings come from, weakest first: program defaults, file, environment, flags.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    defaults: Vec<(String, String)>,
    file: Option<PathBuf>,
    environment: Vec<(String, String)>,
    flags: Vec<String>,
}

/// The usual flags of a service.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigArgs {
    /// TOML file with settings (docs/configuration.md lists all keys).
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Sets one key; may be given several times; wins over file and environment.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Prints every setting with its source (secrets masked), or what is wrong, and ends.
    #[arg(long)]
    pub check_config: bool,
}

impl ConfigArgs {
    /// These flags and the environment of this process.
    pub fn sources(&self) -> Sources {
        let mut sources = Sources::new().environment(std::env::vars_os().filter_map(|(name, value)| {
            // A value that is no text is taken as it can be; its key's check then says what is wrong.
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        }));
        sources.file.clone_from(&self.config);
        sources.flags.clone_from(&self.set);
        sources
    }
}

impl Sources {
    pub fn new() -> Self {
        Self::default()
    }
    /// A value of the program itself, weaker than all others but the table's own default.
    pub fn program(mut self, key: &str, value: impl Into<String>) -> Self {
        self.defaults.push((key.to_owned(), value.into()));
        self
    }
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }
    /// Variables as of a process; those that are no keys of ours are left alone.
    pub fn environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.environment.extend(variables);
        self
    }
    /// A flag `key=value`.
    pub fn flag(mut self, text: impl Into<String>) -> Self {
        self.flags.push(text.into());
        self
    }

    /// Everything said, weakest first.
    pub(crate) fn said(&self) -> (Vec<Said>, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut said: Vec<Said> = self
            .defaults
            .iter()
            .map(|(key, value)| Said {
                key: key.clone(),
                value: Ok(value.clone()),
                origin: Source::Program,
            })
            .collect();
        if let Some(path) = &self.file {
            match read_file(path) {
                Ok(from_file) => said.extend(from_file),
                Err(reason) => problems.push(Problem::File {
                    path: path.display().to_string(),
                    reason,
                }),
            }
        }
        let mut variables: Vec<_> = self.environment.iter().collect();
        variables.sort();
        for (variable, value) in variables {
            if let Some(name) = variable.strip_prefix(PREFIX) {
                said.push(Said {
                    key: name.replace("__", ".").to_lowercase(),
                    value: Ok(value.clone()),
                    origin: Source::Environment {
                        variable: variable.clone(),
                    },
                });
            }
        }
        for flag in &self.flags {
            match flag.split_once('=') {
                Some((key, value)) => {
                    let (key, value) = (key.trim().to_owned(), Ok(value.to_owned()));
                    said.push(Said {
                        key,
                        value,
                        origin: Source::Flag,
                    });
                }
                // It may hold a secret, so only what looks like a key is shown.
                None => problems.push(Problem::BadFlag {
                    text: flag.chars().take(40).collect(),
                }),
            }
        }
        (said, problems)
    }
}

/// One value as it was written.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) key: String,
    /// The error says why it is no single value.
    pub(crate) value: Result<String, String>,
    pub(crate) origin: Source,
}

fn read_file(path: &Path) -> Result<Vec<Said>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let document = toml::de::DeTable::parse(&text).map_err(|error| {
        // The library's own rendering quotes the line, which may hold a secret.
        let line = error.span().map_or(0, |span| line_of(&text, span.start));
        format!("line {line}: {}", error.message())
    })?;
    let mut said = Vec::new();
    flatten(path, &text, "", document.get_ref(), &mut said);
    Ok(said)
}

fn flatten(path: &Path, text: &str, above: &str, table: &toml::de::DeTable<'_>, said: &mut Vec<Said>) {
    use toml::de::DeValue;
    for (name, value) in table {
        let key = if above.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{above}.{}", name.get_ref())
        };
        let one = match value.get_ref() {
            DeValue::Table(inner) => {
                flatten(path, text, &key, inner, said);
                continue;
            }
            DeValue::String(value) => Ok(value.to_string()),
            DeValue::Integer(value) => i64::from_str_radix(value.as_str(), value.radix())
                .map(|number| number.to_string())
                .map_err(|_| "the number is too large".into()),
            DeValue::Boolean(value) => Ok(value.to_string()),
            DeValue::Float(value) => Ok(value.as_str().to_owned()),
            DeValue::Datetime(value) => Ok(value.to_string()),
            DeValue::Array(_) => Err("a list is written where one value is wanted".into()),
        };
        let line = line_of(text, name.span().start);
        said.push(Said {
            key,
            value: one,
            origin: Source::File {
                path: path.display().to_string(),
                line,
            },
        });
    }
}

fn line_of(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}
