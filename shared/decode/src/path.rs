//! Steps from the root of a record to a nested value, on the tape.

use simd_json::{Node, StaticNode};
use tidegate_spec::PathStep;

/// Position behind the value at `at`.
pub(crate) fn after(nodes: &[Node<'_>], at: usize) -> usize {
    match nodes.get(at) {
        Some(Node::Object { count, .. } | Node::Array { count, .. }) => at + count + 1,
        Some(Node::String(_) | Node::Static(_)) | None => at + 1,
    }
}

/// The value of a key; of a repeated one, the last (B08).
pub(crate) fn member(nodes: &[Node<'_>], object: usize, key: &str) -> Option<usize> {
    let Some(Node::Object { len, .. }) = nodes.get(object) else {
        return None;
    };
    let mut at = object + 1;
    let mut found = None;
    for _ in 0..*len {
        if matches!(nodes.get(at), Some(Node::String(name)) if *name == key) {
            found = Some(at + 1);
        }
        at = after(nodes, at + 1);
    }
    found
}

/// The value at the end of a path, if every step is there.
pub(crate) fn walk(nodes: &[Node<'_>], steps: &[PathStep]) -> Option<usize> {
    let mut at = 0;
    for step in steps {
        at = match step {
            PathStep::Key(key) => member(nodes, at, key)?,
            PathStep::Index(index) => {
                let Some(Node::Array { len, .. }) = nodes.get(at) else {
                    return None;
                };
                if index >= len {
                    return None;
                }
                (0..*index).fold(at + 1, |at, _| after(nodes, at))
            }
        };
    }
    Some(at)
}

/// True for JSON `null`.
pub(crate) fn is_null(node: &Node<'_>) -> bool {
    matches!(node, Node::Static(StaticNode::Null))
}
