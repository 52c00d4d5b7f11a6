//! A value of the tape as the value of a typed column. Nothing is rounded or cut in silence: what does not fit makes
//! the record unparseable, with the field and the reason.

use simd_json::{Node, StaticNode};
use tidegate_spec::{DimensionKind, MetricKind, MultiValueHandling};

use crate::json_text;
use crate::layout::ColumnKind;

/// Converted, and not yet in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Slot {
    Null,
    Long(i64),
    Double(f64),
    /// A truth value as text.
    Truth(bool),
    /// The string node at this position.
    Node(u32),
    /// A piece of the scratch text.
    Scratch {
        start: u32,
        end: u32,
    },
    /// The same, as nested JSON (typed discovery).
    Json {
        start: u32,
        end: u32,
    },
}

type Reason = &'static str;

/// Text that was made for this record.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) text: String,
    elements: Vec<String>,
}

impl Scratch {
    fn made(&mut self, write: impl FnOnce(&mut String)) -> (u32, u32) {
        let start = self.text.len() as u32;
        write(&mut self.text);
        (start, self.text.len() as u32)
    }
}

/// The value at `at` for a declared column.
pub(crate) fn declared(
    nodes: &[Node<'_>],
    at: usize,
    kind: ColumnKind,
    multi: MultiValueHandling,
    scratch: &mut Scratch,
) -> Result<Slot, Reason> {
    match kind {
        ColumnKind::Dimension(DimensionKind::String) => Ok(text(nodes, at, multi, scratch)),
        ColumnKind::Dimension(DimensionKind::Json) => Ok(json(nodes, at, scratch)),
        ColumnKind::Dimension(DimensionKind::Long)
        | ColumnKind::Metric(MetricKind::LongSum | MetricKind::LongMin | MetricKind::LongMax) => {
            long(nodes.get(at))
        }
        ColumnKind::Dimension(DimensionKind::Float | DimensionKind::Double)
        | ColumnKind::Metric(
            MetricKind::DoubleSum
            | MetricKind::DoubleMin
            | MetricKind::DoubleMax
            | MetricKind::FloatSum
            | MetricKind::FloatMin
            | MetricKind::FloatMax,
        ) => double(nodes.get(at)),
        ColumnKind::Metric(MetricKind::Count) => Ok(Slot::Long(1)),
    }
}

/// A string dimension: text as it is, other scalars as their text, nested values as JSON text, several values by
/// the column's handling (none = null, one = that one, more = a JSON array of texts).
fn text(nodes: &[Node<'_>], at: usize, multi: MultiValueHandling, scratch: &mut Scratch) -> Slot {
    match nodes.get(at) {
        None | Some(Node::Static(StaticNode::Null)) => Slot::Null,
        Some(Node::String(_)) => Slot::Node(at as u32),
        Some(Node::Static(StaticNode::Bool(value))) => Slot::Truth(*value),
        Some(Node::Static(value)) => {
            let (start, end) = scratch.made(|out| json_text::scalar(*value, out));
            Slot::Scratch { start, end }
        }
        Some(Node::Object { .. }) => {
            let (start, end) = scratch.made(|out| {
                json_text::write(nodes, at, out);
            });
            Slot::Scratch { start, end }
        }
        Some(Node::Array { len, .. }) => list(nodes, at, *len, multi, scratch),
    }
}

fn list(nodes: &[Node<'_>], at: usize, len: usize, multi: MultiValueHandling, scratch: &mut Scratch) -> Slot {
    let mut elements = std::mem::take(&mut scratch.elements);
    elements.clear();
    let mut position = at + 1;
    for _ in 0..len {
        let mut element = String::new();
        match nodes.get(position) {
            Some(Node::String(text)) => element.push_str(text),
            Some(Node::Static(value)) => json_text::scalar(*value, &mut element),
            Some(Node::Object { .. } | Node::Array { .. }) | None => {
                json_text::write(nodes, position, &mut element);
            }
        }
        elements.push(element);
        position = crate::path::after(nodes, position);
    }
    match multi {
        MultiValueHandling::Array => {}
        MultiValueHandling::SortedArray => elements.sort_unstable(),
        MultiValueHandling::SortedSet => {
            elements.sort_unstable();
            elements.dedup();
        }
    }
    let slot = match elements.as_slice() {
        [] => Slot::Null,
        [only] => {
            let (start, end) = scratch.made(|out| out.push_str(only));
            Slot::Scratch { start, end }
        }
        several => {
            let (start, end) = scratch.made(|out| {
                out.push('[');
                for (index, element) in several.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    json_text::quote(element, out);
                }
                out.push(']');
            });
            Slot::Scratch { start, end }
        }
    };
    scratch.elements = elements;
    slot
}

/// A json dimension: every value as JSON text, text quoted.
fn json(nodes: &[Node<'_>], at: usize, scratch: &mut Scratch) -> Slot {
    if nodes.get(at).is_none_or(crate::path::is_null) {
        return Slot::Null;
    }
    let (start, end) = scratch.made(|out| {
        json_text::write(nodes, at, out);
    });
    Slot::Scratch { start, end }
}

/// The 64-bit integers, exactly (B09).
fn long(node: Option<&Node<'_>>) -> Result<Slot, Reason> {
    match node {
        None | Some(Node::Static(StaticNode::Null)) => Ok(Slot::Null),
        Some(Node::Static(StaticNode::I64(value))) => Ok(Slot::Long(*value)),
        Some(Node::Static(StaticNode::U64(value))) => i64::try_from(*value)
            .map(Slot::Long)
            .map_err(|_| "the number does not fit into 64 bits with a sign"),
        Some(Node::Static(StaticNode::F64(value))) => whole(*value),
        Some(Node::Static(StaticNode::Bool(value))) => Ok(Slot::Long(i64::from(*value))),
        Some(Node::String(text)) => {
            let text = text.trim();
            if text.is_empty() {
                return Ok(Slot::Null);
            }
            match text.parse::<i64>() {
                Ok(value) => Ok(Slot::Long(value)),
                Err(_) => whole(text.parse::<f64>().map_err(|_| "the text is not a number")?),
            }
        }
        Some(Node::Object { .. } | Node::Array { .. }) => Err("a nested value is not a number"),
    }
}

/// A float that is a whole number in range: `1e3` and `1.0` are integers too.
fn whole(value: f64) -> Result<Slot, Reason> {
    // 2^63 is the first double above the range; every whole double in the range is an exact i64.
    if value.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        Ok(Slot::Long(value as i64))
    } else if value.is_finite() && value.fract() != 0.0 {
        Err("the number has a fraction, the column holds whole numbers")
    } else {
        Err("the number does not fit into 64 bits with a sign")
    }
}

fn double(node: Option<&Node<'_>>) -> Result<Slot, Reason> {
    match node {
        None | Some(Node::Static(StaticNode::Null)) => Ok(Slot::Null),
        Some(Node::Static(StaticNode::I64(value))) => Ok(Slot::Double(*value as f64)),
        Some(Node::Static(StaticNode::U64(value))) => Ok(Slot::Double(*value as f64)),
        Some(Node::Static(StaticNode::F64(value))) => Ok(Slot::Double(*value)),
        Some(Node::Static(StaticNode::Bool(value))) => Ok(Slot::Double(f64::from(u8::from(*value)))),
        Some(Node::String(text)) => {
            let text = text.trim();
            if text.is_empty() {
                return Ok(Slot::Null);
            }
            text.parse()
                .map(Slot::Double)
                .map_err(|_| "the text is not a number")
        }
        Some(Node::Object { .. } | Node::Array { .. }) => Err("a nested value is not a number"),
    }
}

/// A discovered dimension. As text: nested objects are left out. With types: numbers stay numbers, nested values
/// are JSON. `None` = not a dimension of this row.
pub(crate) fn discovered(nodes: &[Node<'_>], at: usize, typed: bool, scratch: &mut Scratch) -> Option<Slot> {
    match nodes.get(at)? {
        Node::Static(StaticNode::I64(value)) if typed => Some(Slot::Long(*value)),
        Node::Static(StaticNode::U64(value)) if typed && i64::try_from(*value).is_ok() => {
            Some(Slot::Long(*value as i64))
        }
        Node::Static(StaticNode::F64(value)) if typed => Some(Slot::Double(*value)),
        Node::Static(StaticNode::Bool(value)) if typed => Some(Slot::Long(i64::from(*value))),
        Node::Object { .. } | Node::Array { .. } if typed => {
            let (start, end) = scratch.made(|out| {
                json_text::write(nodes, at, out);
            });
            Some(Slot::Json { start, end })
        }
        Node::Static(StaticNode::Null) | Node::Object { .. } => None,
        Node::Array { .. } | Node::String(_) | Node::Static(_) => {
            Some(text(nodes, at, MultiValueHandling::SortedArray, scratch)).filter(|slot| *slot != Slot::Null)
        }
    }
}
