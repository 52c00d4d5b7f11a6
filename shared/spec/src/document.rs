//! JSON text as a tree that knows where everything stands.
//!
//! Promises: plain JSON only (RFC 8259) for [`read`]; the first syntax error is reported with line and column; a
//! repeated key is an error, since nobody can tell which one was meant.

use jsonc_parser::ast;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::issue::{Findings, SpecIssue, issue};

/// A value with its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Byte offset in the text.
    pub(crate) at: usize,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Byte offset of the name.
    pub(crate) at: usize,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.content {
            Content::Null => "null",
            Content::Bool(_) => "a boolean",
            Content::Number(_) => "a number",
            Content::Text(_) => "a text",
            Content::List(_) => "a list",
            Content::Object(_) => "an object",
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An entry of an object, `null` counting as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Content::Object(entries) = &self.content else {
            return None;
        };
        entries
            .iter()
            .rev()
            .find(|entry| entry.name == name)
            .map(|entry| &entry.value)
            .filter(|node| !node.is_null())
    }

    /// The value without places.
    pub(crate) fn to_value(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(text) => serde_json::from_str(text).unwrap_or(Value::Null),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Content::Object(entries) => Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.name.clone(), entry.value.to_value()))
                    .collect(),
            ),
        }
    }
}

/// Reads plain JSON. Repeated keys go to `findings`; a syntax error is returned, since nothing can be read then.
pub(crate) fn read(text: &str, findings: &mut Findings<'_>) -> Result<Node, SpecIssue> {
    check_syntax(text)?;
    let value = parse(text, &strict())?;
    let node = convert(&value);
    report_repeated_keys(&node, "", findings);
    Ok(node)
}

/// The strict check, whose messages are for people. It does not recurse; the depth is bounded by [`parse`].
fn check_syntax(text: &str) -> Result<(), SpecIssue> {
    let Err(error) = serde_json::from_str::<IgnoredAny>(text) else {
        return Ok(());
    };
    let line_start: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let at = (line_start + error.column().saturating_sub(1)).min(text.len());
    let full = error.to_string();
    let what = full.split(" at line ").next().unwrap_or(&full);
    let rest = &text.as_bytes()[at..];
    let message = if text.trim().is_empty() {
        "the document is empty".to_owned()
    } else if rest.starts_with(b"//") || rest.starts_with(b"/*") {
        "a comment: plain JSON has none; take it out (the command line takes files with comments)".to_owned()
    } else if rest.starts_with(b"]") || rest.starts_with(b"}") {
        match text.as_bytes()[..at].trim_ascii_end().last() {
            Some(b',') => "not valid JSON: a comma stands before the closing bracket; take it out".to_owned(),
            _ => format!("not valid JSON: {what}"),
        }
    } else {
        format!("not valid JSON: {what}")
    };
    Err(issue(text, at, String::new(), message))
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn parse<'t>(text: &'t str, options: &ParseOptions) -> Result<ast::Value<'t>, SpecIssue> {
    let collect = CollectOptions {
        comments: CommentCollectionStrategy::Off,
        tokens: false,
    };
    match parse_to_ast(text, &collect, options) {
        Ok(parsed) => parsed
            .value
            .ok_or_else(|| issue(text, 0, String::new(), "the document is empty".to_owned())),
        Err(error) => Err(syntax_error(text, &error)),
    }
}

fn syntax_error(text: &str, error: &jsonc_parser::errors::ParseError) -> SpecIssue {
    issue(
        text,
        error.range().start,
        String::new(),
        format!("not valid JSON: {}", error.kind()),
    )
}

fn convert(value: &ast::Value<'_>) -> Node {
    match value {
        ast::Value::NullKeyword(null) => Node {
            at: null.range.start,
            content: Content::Null,
        },
        ast::Value::BooleanLit(flag) => Node {
            at: flag.range.start,
            content: Content::Bool(flag.value),
        },
        ast::Value::NumberLit(number) => Node {
            at: number.range.start,
            content: Content::Number(number.value.to_owned()),
        },
        ast::Value::StringLit(text) => Node {
            at: text.range.start,
            content: Content::Text(text.value.to_string()),
        },
        ast::Value::Array(list) => Node {
            at: list.range.start,
            content: Content::List(list.elements.iter().map(convert).collect()),
        },
        ast::Value::Object(object) => {
            let entry = |property: &ast::ObjectProp<'_>| Entry {
                name: property.name.as_str().to_owned(),
                at: property.range.start,
                value: convert(&property.value),
            };
            Node {
                at: object.range.start,
                content: Content::Object(object.properties.iter().map(entry).collect()),
            }
        }
    }
}

fn report_repeated_keys(node: &Node, path: &str, findings: &mut Findings<'_>) {
    match &node.content {
        Content::Object(entries) => {
            let mut seen = std::collections::HashSet::new();
            for entry in entries {
                let below = join(path, &entry.name);
                if !seen.insert(entry.name.as_str()) {
                    findings.error(entry.at, below.as_str(), "the key is given twice in this object");
                }
                report_repeated_keys(&entry.value, &below, findings);
            }
        }
        Content::List(items) => {
            for (index, item) in items.iter().enumerate() {
                report_repeated_keys(item, &format!("{path}[{index}]"), findings);
            }
        }
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::Text(_) => {}
    }
}

/// The path of a field.
pub(crate) fn join(path: &str, name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

/// Turns a spec file with comments and trailing commas into plain JSON; tells whether there were any.
/// What is taken out becomes blanks, so that every line and column stays where it was.
pub fn from_commented(text: &str) -> Result<(String, bool), SpecIssue> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        ..strict()
    };
    let collect = CollectOptions {
        comments: CommentCollectionStrategy::AsTokens,
        tokens: true,
    };
    let parsed = parse_to_ast(text, &collect, &options).map_err(|error| syntax_error(text, &error))?;
    let mut blanks = Vec::new();
    let mut comma = None;
    for token in parsed.tokens.unwrap_or_default() {
        match token.token {
            Token::CommentLine(_) | Token::CommentBlock(_) => blanks.push(token.range.start..token.range.end),
            Token::Comma => comma = Some(token.range.start..token.range.end),
            Token::CloseBrace | Token::CloseBracket => blanks.extend(comma.take()),
            _ => comma = None,
        }
    }
    let found = !blanks.is_empty();
    let mut plain = text.as_bytes().to_vec();
    for range in blanks {
        for byte in plain.get_mut(range).unwrap_or_default() {
            if !matches!(*byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    // Only whole comments and commas were overwritten, so this cannot fail.
    Ok((
        String::from_utf8(plain).unwrap_or_else(|_| text.to_owned()),
        found,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> (String, usize, usize) {
        let issue = read(text, &mut Findings::new(text)).unwrap_err();
        (issue.message, issue.line, issue.column)
    }

    #[test]
    fn a_syntax_error_has_its_line_and_column() {
        for (text, part, line, column) in [
            ("", "empty", 1, 1),
            ("{\n  \"a\": 1,\n}", "a comma stands before", 3, 1),
            ("[1,\n]", "a comma stands before", 2, 1),
            ("{\n  // x\n}", "a comment", 2, 3),
            ("{\"ł\": /* x */ 1}", "a comment", 1, 7),
            ("{\"a\": nul}", "expected ident", 1, 10),
            ("{\"a\": 01}", "invalid number", 1, 8),
            ("{\"a\": 'x'}", "expected value", 1, 7),
            ("{\"a\" 1}", "expected `:`", 1, 6),
            ("{} {}", "trailing characters", 1, 4),
        ] {
            let (message, at_line, at_column) = failure(text);
            assert!(message.contains(part), "{text}: {message}");
            assert_eq!((at_line, at_column), (line, column), "{text}: {message}");
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(failure(&deep).0.contains("Maximum nesting depth"));
    }

    #[test]
    fn a_repeated_key_is_reported_where_it_comes_again() {
        let text = "{\"a\": {\"b\": 1,\n \"b\": 2}}";
        let mut findings = Findings::new(text);
        read(text, &mut findings).unwrap();
        let (errors, _) = findings.into_parts();
        assert_eq!(errors.len(), 1);
        assert_eq!(
            (errors[0].path.as_str(), errors[0].line, errors[0].column),
            ("a.b", 2, 2)
        );
    }

    #[test]
    fn comments_and_trailing_commas_become_blanks() {
        let text = "{ // one ł\n \"a\": [1, 2,], /* two\n three */ \"//\": \"/* no */\",\n}";
        let (plain, found) = from_commented(text).unwrap();
        assert!(found);
        let value: Value = serde_json::from_str(&plain).unwrap();
        assert_eq!(value, serde_json::json!({"a": [1, 2], "//": "/* no */"}));
        assert_eq!(plain.lines().count(), text.lines().count());
        assert_eq!(
            from_commented("{\"a\": 1}").unwrap(),
            ("{\"a\": 1}".to_owned(), false)
        );
        assert_eq!(from_commented("{\"a\" 1}").unwrap_err().line, 1);
        assert!(
            from_commented("{a: 1}").is_err(),
            "only comments and commas are forgiven"
        );
    }
}
