//! `inputFormat` and `flattenSpec`.

use std::collections::HashSet;

use crate::document::Node;
use crate::fields::section;
use crate::issue::Findings;
use crate::model::{FlattenField, FlattenSource, JsonFormat};
use crate::path::parse_path;
use crate::reader::{Reader, not_supported_yet, pick};
use crate::suggest::shown;

const FORMATS_NOT_YET: [&str; 13] = [
    "csv",
    "tsv",
    "delimited",
    "regex",
    "lines",
    "avro_stream",
    "avro_ocf",
    "protobuf",
    "kafka",
    "kinesis",
    "thrift",
    "orc",
    "parquet",
];

/// How a field of a flattenSpec is found.
#[derive(Clone, Copy)]
enum FieldKind {
    Root,
    Path,
}

/// JSON without a flattenSpec.
pub(super) fn plain() -> JsonFormat {
    JsonFormat {
        fields: Vec::new(),
        use_field_discovery: Some(true),
    }
}

pub(super) fn read(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<JsonFormat> {
    // Another format has fields of its own, which are not worth reporting beside it.
    if let Some(kind) = node.get("type")
        && let Some(text) = kind.text()
        && let Err(message) = pick(text, &[("json", ())], &FORMATS_NOT_YET)
    {
        findings.error(kind.at, format!("{path}.type"), message);
        return None;
    }
    let reader = Reader::open(node, path, section("ioConfig.inputFormat"), findings)?;
    reader.required_text("type", findings);
    match reader.node("flattenSpec") {
        Some(node) => read_flatten(node, &reader.path_of("flattenSpec"), findings),
        None => Some(plain()),
    }
}

pub(super) fn read_flatten(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<JsonFormat> {
    let reader = Reader::open(node, path, section("ioConfig.inputFormat.flattenSpec"), findings)?;
    let use_field_discovery = Some(reader.flag("useFieldDiscovery", true, findings));
    let mut fields: Vec<FlattenField> = Vec::new();
    let mut names = HashSet::new();
    for (item_path, item) in reader.items("fields", findings) {
        let Some(field) = read_field(item, &item_path, findings) else {
            continue;
        };
        if names.insert(field.name.clone()) {
            fields.push(field);
        } else {
            findings.error(
                item.at,
                item_path,
                format!("field {} is given twice", shown(&field.name)),
            );
        }
    }
    Some(JsonFormat {
        fields,
        use_field_discovery,
    })
}

fn read_field(node: &Node, path: &str, findings: &mut Findings<'_>) -> Option<FlattenField> {
    if let Some(name) = node.text() {
        if name.is_empty() {
            findings.error(node.at, path, "must not be empty");
            return None;
        }
        return Some(FlattenField {
            name: name.to_owned(),
            source: FlattenSource::Root(name.to_owned()),
        });
    }
    if let Some(kind) = node.get("type")
        && let Some(text) = kind.text()
        && ["jq", "tree"].iter().any(|word| word.eq_ignore_ascii_case(text))
    {
        let message = not_supported_yet(&format!("`{}`", text.to_ascii_lowercase()));
        findings.error(kind.at, format!("{path}.type"), message);
        return None;
    }
    let reader = Reader::open(
        node,
        path,
        section("ioConfig.inputFormat.flattenSpec.fields[]"),
        findings,
    )?;
    let kinds = [("root", FieldKind::Root), ("path", FieldKind::Path)];
    let kind = if reader.has("type") {
        reader.word("type", &kinds, &[], findings)
    } else {
        Some(FieldKind::Root)
    };
    let name = reader.required_text("name", findings);
    let source = match kind? {
        FieldKind::Root => FlattenSource::Root(reader.text("expr", findings).or(name)?.to_owned()),
        FieldKind::Path => match parse_path(reader.required_text("expr", findings)?) {
            Ok(steps) => FlattenSource::Path(steps),
            Err(error) => {
                reader.error("expr", error, findings);
                return None;
            }
        },
    };
    Some(FlattenField {
        name: name?.to_owned(),
        source,
    })
}
