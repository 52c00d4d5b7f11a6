//! The table of every field a spec may have: type, default, effect and meaning.
//!
//! Promises: the parser knows no other field; `docs/spec.md` is printed from here and a test keeps it so; defaults
//! written here are those that the parser applies (a test compares them with the normalized form).

mod io;
mod schema;
mod tuning;

use std::sync::LazyLock;

use serde_json::Value;

/// What a field does in this release.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// It has its effect.
    Yes,
    /// Accepted with a warning: it concerns the original's own files or ways.
    Note,
    /// Known, and refused unless its value changes nothing (the function says so).
    Later(fn(&Value) -> bool),
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    /// In words, for people.
    pub kind: &'static str,
    /// The default as JSON; empty when there is none to write (then `meaning` tells).
    pub default: &'static str,
    pub effect: Effect,
    pub meaning: &'static str,
}

/// One object of the document.
#[derive(Debug, Clone)]
pub struct Section {
    /// Path of the object without the `spec` wrapper; empty for the document itself.
    pub path: &'static str,
    /// What it is, for the documentation.
    pub about: &'static str,
    pub fields: Vec<Field>,
}

impl Section {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name)
    }
}

/// Every section, in the order of the documentation.
pub fn sections() -> &'static [Section] {
    static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
        [
            document(),
            schema::data_schema(),
            io::io_config(),
            tuning::tuning_config(),
        ]
        .concat()
    });
    &SECTIONS
}

/// The section of a path that is in the table; the parser only asks for those.
pub(crate) fn section(path: &str) -> &'static Section {
    sections()
        .iter()
        .find(|section| section.path == path)
        .unwrap_or(&sections()[0])
}

const fn yes(name: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Field {
    Field {
        name,
        kind,
        default,
        effect: Effect::Yes,
        meaning,
    }
}
const fn note(name: &'static str, kind: &'static str, meaning: &'static str) -> Field {
    Field {
        name,
        kind,
        default: "",
        effect: Effect::Note,
        meaning,
    }
}
const fn later(
    name: &'static str,
    kind: &'static str,
    harmless: fn(&Value) -> bool,
    meaning: &'static str,
) -> Field {
    Field {
        name,
        kind,
        default: "",
        effect: Effect::Later(harmless),
        meaning,
    }
}

fn never(_: &Value) -> bool {
    false
}
fn is_false(value: &Value) -> bool {
    value == false
        || value
            .as_str()
            .is_some_and(|text| text.eq_ignore_ascii_case("false"))
}
fn is_true(value: &Value) -> bool {
    value == true
        || value
            .as_str()
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
}
fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}
fn is_one(value: &Value) -> bool {
    value == 1 || value == "1"
}
fn is_minus_one(value: &Value) -> bool {
    value == -1 || value == "-1"
}
/// An object that says of itself that it is off.
fn is_switched_off(value: &Value) -> bool {
    let off = |field: &str| value.get(field).is_none_or(is_false);
    value.is_object() && off("enabled") && off("enableTaskAutoScaler")
}

fn document() -> Vec<Section> {
    vec![
        Section {
            path: "",
            about: "The document. `dataSchema`, `ioConfig` and `tuningConfig` stand in `spec` or directly here; a copy in both places (a server's answer has that) must be equal.",
            fields: vec![
                yes("type", "text", "\"kafka\"", "`kafka`, in any case."),
                yes("id", "text", "", "Supervisor id. Default: the data source."),
                yes("spec", "object", "", "Wrapper of the three objects."),
                yes("dataSchema", "object", "", "Required, here or in `spec`."),
                yes("ioConfig", "object", "", "Required, here or in `spec`."),
                yes(
                    "tuningConfig",
                    "object",
                    "{}",
                    "Bounds and budgets; may be left out.",
                ),
                yes("suspended", "boolean", "false", "Submitted, but no tasks run."),
                later("context", "object", is_empty, "Passed to tasks."),
            ],
        },
        Section {
            path: "spec",
            about: "The wrapper.",
            fields: vec![
                yes("type", "text", "\"kafka\"", "`kafka`, in any case."),
                yes("dataSchema", "object", "", "Required."),
                yes("ioConfig", "object", "", "Required."),
                yes("tuningConfig", "object", "{}", "May be left out."),
            ],
        },
    ]
}
