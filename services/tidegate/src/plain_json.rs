//! Specs are written by people: comments and trailing commas are taken out before the text is sent.
//!
//! Promises: what is taken out is replaced by spaces, so that the line and column of an issue still point into the
//! file. Must never: look into strings.

/// The text without `// …`, `/* … */` and commas before a closing bracket.
pub fn plain_json(text: &str) -> String {
    without_trailing_commas(&without_comments(text))
}

fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                plain.push(c);
                plain.extend(chars.next());
            }
            '"' => {
                in_string = !in_string;
                plain.push(c);
            }
            '/' if !in_string && chars.peek() == Some(&'/') => {
                plain.push(' ');
                while let Some(inside) = chars.next_if(|c| *c != '\n') {
                    plain.push(blank(inside));
                }
            }
            '/' if !in_string && chars.peek() == Some(&'*') => {
                plain.push(' ');
                chars.next();
                plain.push(' ');
                let mut before = ' ';
                for inside in chars.by_ref() {
                    plain.push(blank(inside));
                    if before == '*' && inside == '/' {
                        break;
                    }
                    before = inside;
                }
            }
            c => plain.push(c),
        }
    }
    plain
}

fn without_trailing_commas(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut in_string = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if in_string => {
                plain.push(c);
                plain.extend(chars.next().map(|(_, escaped)| escaped));
                continue;
            }
            '"' => in_string = !in_string,
            ',' if !in_string && text[at + 1..].trim_start().starts_with(['}', ']']) => {
                plain.push(' ');
                continue;
            }
            _ => {}
        }
        plain.push(c);
    }
    plain
}

/// Line breaks stay, everything else becomes a space (of one column, as columns are counted in characters).
fn blank(c: char) -> char {
    if c == '\n' || c == '\r' { c } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_go_and_positions_stay() {
        let text = "{ // héllo\n  \"a\": \"x // no, }\", /* one\n two */ \"b\": [1, 2, ],\n}";
        let plain = plain_json(text);
        assert_eq!(plain.lines().count(), text.lines().count());
        assert_eq!(plain.chars().count(), text.chars().count());
        let value: serde_json::Value = serde_json::from_str(&plain).unwrap();
        assert_eq!(value, serde_json::json!({"a": "x // no, }", "b": [1, 2]}));
    }

    #[test]
    fn quotes_inside_strings_do_not_confuse_it() {
        let text = r#"{"a": "\\", "b": "\"//", "c": 1}"#;
        assert_eq!(plain_json(text), text);
    }
}
