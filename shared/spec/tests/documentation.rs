//! `docs/spec.md` is printed from the table of fields, and the table tells the truth about defaults.
//!
//! `TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-spec --test documentation` writes the file.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tidegate_spec::SupervisorSpec;
use tidegate_spec::fields::{Effect, Section, sections};

const INTRODUCTION: &str = "# The ingestion spec

<!-- Printed from `shared/spec/src/fields.rs` by the test `documentation`; change it there. -->

The JSON that `tidegate supervisor submit` and the Submit call take: the supervisor spec of Druid, as people write it.

- The three objects stand in `spec` or directly at the top. Paths below leave `spec.` out.
- Words and `type`s may be written in any case; numbers and booleans also as text (`\"100000\"`); `null` is the same as
  leaving a field out. Periods are ISO-8601 (`PT1H`, `P1D`) and never negative.
- Plain JSON only; the command line also takes a file with comments and trailing commas.
- Every error is reported at once, with its path, line and column. An unknown field is an error. A field marked
  *not yet* is known and refused by name unless its value changes nothing (`null`, or the value it has by default); one
  marked *no effect* is accepted with a warning.
- Secrets: a consumer property whose name sounds like a secret (password, secret, token, jaas, key.pem …) is masked as
  `******` wherever a spec is shown. Better not to write it at all and to refer to it:
  `{\"type\": \"environment\", \"variable\": \"NAME\"}` or `{\"type\": \"file\", \"path\": \"/run/secrets/name\"}`, which is followed by
  the process that connects. A masked spec may be submitted again: the mask stands for the stored value.
";

fn printed() -> String {
    let mut text = String::from(INTRODUCTION);
    for section in sections() {
        let title = if section.path.is_empty() {
            "document"
        } else {
            section.path
        };
        let _ = write!(
            text,
            "\n## {title}\n\n{}\n\n| field | type | default | |\n|---|---|---|---|\n",
            section.about
        );
        for field in &section.fields {
            let default = if field.default.is_empty() {
                String::new()
            } else {
                format!("`{}`", field.default)
            };
            let meaning = match field.effect {
                Effect::Yes => field.meaning.to_owned(),
                Effect::Note => format!("*No effect*: {}.", field.meaning),
                Effect::Later(_) => format!("*Not yet.* {}", field.meaning),
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {} |",
                field.name,
                field.kind,
                meaning.replace('|', "\\|")
            );
        }
    }
    text
}

#[test]
fn the_documentation_is_the_table() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec.md");
    if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
        std::fs::write(&path, printed()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == printed(),
        "docs/spec.md differs from the table of fields; write it again with TIDEGATE_WRITE_DOCS=1"
    );
}

/// A spec that has every object, with nothing but what is required in each.
fn bare() -> Value {
    json!({"spec": {
        "dataSchema": {
            "dataSource": "d",
            "timestampSpec": {},
            "dimensionsSpec": {"dimensions": [{"name": "a"}]},
            "granularitySpec": {},
        },
        "ioConfig": {
            "topic": "t",
            "consumerProperties": {"bootstrap.servers": "h:1"},
            "inputFormat": {"type": "json", "flattenSpec": {"fields": [{"name": "a"}]}},
        },
        "tuningConfig": {"segmentWriter": {}},
    }})
}

fn at<'v>(document: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .filter(|name| !name.is_empty())
        .try_fold(document, |place, name| {
            let (name, is_item) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
            let value = place.get(name)?;
            if is_item { value.get(0) } else { Some(value) }
        })
}

fn normalized_section<'v>(document: &'v Value, section: &Section) -> Option<&'v Value> {
    match section.path {
        "" => Some(document),
        "spec" => None,
        path => at(&document["spec"], path),
    }
}

#[test]
fn the_defaults_in_the_table_are_those_that_are_applied() {
    let spec = SupervisorSpec::parse(&bare().to_string()).unwrap().spec;
    let normalized = spec.to_normalized_json();
    let mut compared = 0;
    for section in sections() {
        let Some(object) = normalized_section(&normalized, section) else {
            continue;
        };
        for field in &section.fields {
            let (Some(applied), false) = (object.get(field.name), field.default.is_empty()) else {
                continue;
            };
            let mut written: Value = serde_json::from_str(field.default).unwrap();
            // The list of dimensions and fields has the one item that this test put there; objects have their own lines.
            if applied.is_object() || applied.as_array().is_some_and(|items| !items.is_empty()) {
                written = applied.clone();
            }
            assert_eq!(applied, &written, "{}.{}", section.path, field.name);
            compared += 1;
        }
    }
    assert!(compared >= 45, "only {compared} defaults were compared");
}

#[test]
fn writing_a_default_out_changes_nothing() {
    let plain = SupervisorSpec::parse(&bare().to_string()).unwrap().spec;
    let skipped = ["", "spec", "dataSchema.parser", "dataSchema.parser.parseSpec"];
    for section in sections()
        .iter()
        .filter(|section| !skipped.contains(&section.path))
    {
        for field in section.fields.iter().filter(|field| !field.default.is_empty()) {
            let mut document = bare();
            let pointer = format!("/spec/{}", section.path.replace("[]", "/0").replace('.', "/"));
            let Some(object) = document.pointer_mut(&pointer).and_then(Value::as_object_mut) else {
                continue;
            };
            if object.contains_key(field.name) {
                continue;
            }
            object.insert(
                field.name.to_owned(),
                serde_json::from_str(field.default).unwrap(),
            );
            let written = SupervisorSpec::parse(&document.to_string())
                .unwrap_or_else(|issues| panic!("{}.{}: {issues:?}", section.path, field.name));
            assert_eq!(written.spec, plain, "{}.{}", section.path, field.name);
        }
    }
}

#[test]
fn a_field_that_comes_later_is_refused_and_one_without_effect_warned_of() {
    let unlikely = json!({"enabled": true, "unlikely": [1]});
    for section in sections() {
        let path = section.path.replace("[]", "/0").replace('.', "/");
        let pointer = if ["", "spec"].contains(&section.path) {
            path
        } else {
            format!("/spec/{path}")
        };
        for field in &section.fields {
            let mut document = bare();
            let Some(object) = document.pointer_mut(&pointer).and_then(Value::as_object_mut) else {
                continue;
            };
            object.insert(field.name.to_owned(), unlikely.clone());
            let result = SupervisorSpec::parse(&document.to_string());
            match field.effect {
                Effect::Yes => {}
                Effect::Note => {
                    let warnings = result
                        .unwrap_or_else(|issues| panic!("{}: {issues:?}", field.name))
                        .warnings;
                    assert!(
                        warnings.iter().any(|issue| issue.path.ends_with(field.name)),
                        "{}",
                        field.name
                    );
                }
                Effect::Later(_) => {
                    let issues = result.expect_err(field.name);
                    assert!(
                        issues.iter().all(|issue| issue.path.ends_with(field.name)),
                        "{issues:?}"
                    );
                    assert!(
                        issues
                            .iter()
                            .any(|issue| issue.message.contains("not supported yet")),
                        "{issues:?}"
                    );
                }
            }
        }
    }
}
