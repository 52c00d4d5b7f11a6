//! From the document to the typed spec.

mod input_format;
mod io;
mod schema;
mod tuning;

use tidegate_types::SupervisorId;

use crate::document::{self, Node};
use crate::fields::section;
use crate::issue::{Findings, Parsed, SpecErrors, SpecIssue, issue};
use crate::model::{InputFormat, SupervisorSpec};
use crate::reader::{Reader, pick};

pub(crate) use schema::metric_kind_name;
pub(crate) use tuning::UNLIMITED;

/// No sensible spec is longer.
const MAX_BYTES: usize = 4 * 1024 * 1024;

impl SupervisorSpec {
    /// Reads and validates a spec. Gives every error at once, in the order of the document.
    pub fn parse(json_text: &str) -> Result<Parsed, Vec<SpecIssue>> {
        let text = json_text.strip_prefix('\u{feff}').unwrap_or(json_text);
        if text.len() > MAX_BYTES {
            let message = format!(
                "the document has {} bytes; at most {MAX_BYTES} are read",
                text.len()
            );
            return Err(vec![issue(text, 0, String::new(), message)]);
        }
        let mut findings = Findings::new(text);
        let root = document::read(text, &mut findings).map_err(|issue| vec![issue])?;
        let spec = read_document(&root, &mut findings);
        let (errors, warnings) = findings.into_parts();
        match spec {
            Some(spec) if errors.is_empty() => Ok(Parsed { spec, warnings }),
            _ => Err(errors),
        }
    }
}

/// [`SupervisorSpec::parse`] with its errors as one error value.
pub fn parse(json_text: &str) -> Result<Parsed, SpecErrors> {
    SupervisorSpec::parse(json_text).map_err(SpecErrors)
}

/// The three objects, wherever they stand.
struct Parts<'d> {
    /// Path and place of what holds them.
    path: String,
    at: usize,
    data_schema: Option<&'d Node>,
    io: Option<&'d Node>,
    tuning: Option<&'d Node>,
}

fn read_document(root: &Node, findings: &mut Findings<'_>) -> Option<SupervisorSpec> {
    let top = Reader::open(root, "", section(""), findings)?;
    kafka_type(&top, findings);
    let suspended = top.flag("suspended", false, findings);
    let id = top
        .text("id", findings)
        .map(|text| (text, SupervisorId::new(text)));
    if let Some((_, Err(error))) = &id {
        top.error("id", error, findings);
    }
    let parts = parts(&top, findings)?;
    let path_of = |name: &str| document::join(&parts.path, name);
    for (name, node) in [("dataSchema", parts.data_schema), ("ioConfig", parts.io)] {
        if node.is_none() {
            findings.error(parts.at, path_of(name), "is missing");
        }
    }
    let schema = parts
        .data_schema
        .and_then(|node| schema::read(node, &path_of("dataSchema"), findings));
    let old_form = parts.data_schema.is_some_and(|node| node.get("parser").is_some());
    let io = parts
        .io
        .and_then(|node| io::read(node, &path_of("ioConfig"), old_form, findings));
    let tuning = match parts.tuning {
        Some(node) => tuning::read(node, &path_of("tuningConfig"), findings),
        None => Some(tuning::defaults()),
    };
    // A part may be there and wrong; then its error is among the findings.
    let (schema, (mut io, format), (tuning, columns)) = (schema?, io?, tuning?);
    tuning::check_columns(&columns, &schema.schema, findings);
    if findings.has_errors() {
        return None;
    }
    io.input_format = InputFormat::Json(format.or(schema.old_format)?);
    let id = match id {
        Some((_, id)) => id.ok()?,
        None => SupervisorId::new(schema.schema.data_source.as_str()).ok()?,
    };
    Some(SupervisorSpec {
        id,
        suspended,
        data_schema: schema.schema,
        io,
        tuning,
    })
}

/// Finds the three objects in `spec` or at the top; a copy in both places has to be equal.
fn parts<'d>(top: &Reader<'d>, findings: &mut Findings<'_>) -> Option<Parts<'d>> {
    let Some(wrapper) = top.node("spec") else {
        return Some(Parts {
            path: String::new(),
            at: top.at,
            data_schema: top.node("dataSchema"),
            io: top.node("ioConfig"),
            tuning: top.node("tuningConfig"),
        });
    };
    let inner = Reader::open(wrapper, "spec", section("spec"), findings)?;
    kafka_type(&inner, findings);
    for name in ["dataSchema", "ioConfig", "tuningConfig"] {
        let (Some(outside), Some(inside)) = (top.node(name), inner.node(name)) else {
            if top.has(name) {
                top.error(
                    name,
                    format!("stands beside `spec`; put it into `spec.{name}`"),
                    findings,
                );
            }
            continue;
        };
        if outside.to_value() != inside.to_value() {
            top.error(
                name,
                format!("is given twice and differs from `spec.{name}`; leave one out"),
                findings,
            );
        }
    }
    Some(Parts {
        path: inner.path.clone(),
        at: inner.at,
        data_schema: inner.node("dataSchema"),
        io: inner.node("ioConfig"),
        tuning: inner.node("tuningConfig"),
    })
}

/// The `type` of the document and of its configs.
fn kafka_type(reader: &Reader<'_>, findings: &mut Findings<'_>) {
    if let Some(text) = reader.text("type", findings)
        && let Err(message) = pick(text, &[("kafka", ())], &["kinesis", "rabbit"])
    {
        reader.error("type", message, findings);
    }
}
