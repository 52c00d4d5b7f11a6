//! A value of the tape as JSON text. Nesting is bounded by the parser, so is the recursion here.

use std::fmt::Write as _;

use simd_json::{Node, StaticNode};

/// Appends the value at `at`; returns the position behind it. A repeated key is written once, with its last value
/// (B08).
pub(crate) fn write(nodes: &[Node<'_>], at: usize, out: &mut String) -> usize {
    match nodes.get(at) {
        None => at + 1,
        Some(Node::String(text)) => {
            quote(text, out);
            at + 1
        }
        Some(Node::Static(value)) => {
            scalar(*value, out);
            at + 1
        }
        Some(Node::Array { len, .. }) => {
            out.push('[');
            let mut position = at + 1;
            for index in 0..*len {
                if index > 0 {
                    out.push(',');
                }
                position = write(nodes, position, out);
            }
            out.push(']');
            position
        }
        Some(Node::Object { len, .. }) => {
            out.push('{');
            let mut position = at + 1;
            let mut first = true;
            for _ in 0..*len {
                let Some(Node::String(key)) = nodes.get(position) else {
                    break;
                };
                if crate::path::member(nodes, at, key) == Some(position + 1) {
                    if !first {
                        out.push(',');
                    }
                    first = false;
                    quote(key, out);
                    out.push(':');
                    position = write(nodes, position + 1, out);
                } else {
                    position = crate::path::after(nodes, position + 1);
                }
            }
            out.push('}');
            position
        }
    }
}

/// A scalar as text: also what a string dimension holds of it.
pub(crate) fn scalar(value: StaticNode, out: &mut String) {
    // Writing to a String does not fail.
    let _ = match value {
        StaticNode::Null => write!(out, "null"),
        StaticNode::Bool(value) => write!(out, "{value}"),
        StaticNode::I64(value) => write!(out, "{value}"),
        StaticNode::U64(value) => write!(out, "{value}"),
        // The shortest text that reads back as the same number, with a fraction (1.0, not 1).
        StaticNode::F64(value) => write!(out, "{value:?}"),
    };
}

pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}
