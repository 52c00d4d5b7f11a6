//! No text makes the parser panic, and whatever is accepted reads back.

use proptest::prelude::*;
use serde_json::Value;
use tidegate_spec::{SupervisorSpec, from_commented};

const SEEDS: [&str; 5] = [
    include_str!("data/old-parser-unwrapped.json"),
    include_str!("data/prometheus-max.json"),
    include_str!("data/returned-by-get.json"),
    include_str!("data/wrapped-flatten-jq.json"),
    include_str!("data/bad-many-errors.json"),
];

/// Reads a text; an accepted one has to survive its normalized form.
fn check(text: &str) {
    match SupervisorSpec::parse(text) {
        Ok(parsed) => {
            let normalized = parsed.spec.to_normalized_json().to_string();
            let again = SupervisorSpec::parse(&normalized)
                .unwrap_or_else(|issues| panic!("{normalized}: {issues:?}"));
            assert_eq!(again.spec, parsed.spec);
            assert_eq!(
                again.spec.config_digest_parts(),
                parsed.spec.config_digest_parts()
            );
            let _ = parsed.spec.masked_json();
        }
        Err(issues) => {
            assert!(!issues.is_empty(), "refused without a reason: {text}");
            assert!(
                issues
                    .iter()
                    .all(|issue| issue.line >= 1 && issue.column >= 1 && !issue.message.is_empty())
            );
        }
    }
    let _ = from_commented(text);
}

/// Every place of a document that holds a value.
fn places(value: &Value, pointer: &str, into: &mut Vec<String>) {
    into.push(pointer.to_owned());
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(entries) => {
            entries
                .iter()
                .for_each(|(name, value)| places(value, &format!("{pointer}/{}", escaped(name)), into));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| places(item, &format!("{pointer}/{index}"), into));
        }
        _ => {}
    }
}

#[test]
fn any_value_at_any_place_is_accepted_or_refused_with_a_reason() {
    let values = [
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e400",
        "9223372036854775808",
        "\"\"",
        "\" \"",
        "\"x\"",
        "\"PT1H\"",
        "\"\\u0000\"",
        "[]",
        "[null]",
        "[[]]",
        "{}",
        "{\"type\":5}",
        "{\"type\":\"period\"}",
        "{\"\":\"\"}",
    ];
    for seed in SEEDS {
        let document: Value = serde_json::from_str(seed).unwrap();
        let mut pointers = Vec::new();
        places(&document, "", &mut pointers);
        for pointer in pointers {
            for value in values {
                let mut changed = document.clone();
                *changed.pointer_mut(&pointer).unwrap() = Value::String("@@".to_owned());
                check(&changed.to_string().replace("\"@@\"", value));
            }
        }
    }
}

#[test]
fn a_document_beyond_the_bounds_is_refused() {
    let long = format!("{{\"dataSchema\": \"{}\"}}", "x".repeat(5_000_000));
    assert!(
        SupervisorSpec::parse(&long).unwrap_err()[0]
            .message
            .contains("bytes")
    );
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [100, 127, 128, 600, 50_000] {
            check(&format!("{}1{}", open.repeat(depth), close.repeat(depth)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in ".{0,80}", jsonlike in "[\\[\\]{}\",:0-9a/*. \\\\nul-]{0,60}") {
        check(&text);
        check(&jsonlike);
    }

    #[test]
    fn a_spec_that_is_cut_or_overwritten_anywhere_does_not_make_it_panic(
        seed in 0..SEEDS.len(), at: prop::sample::Index, length in 0_usize..20, patch in "[\\[\\]{}\",:0-9a-zT ]{0,6}"
    ) {
        let text = SEEDS[seed];
        let start = at.index(text.len());
        let end = (start + length).min(text.len());
        if let (Some(front), Some(back)) = (text.get(..start), text.get(end..)) {
            check(front);
            check(&format!("{front}{patch}{back}"));
        }
    }

    #[test]
    fn any_period_and_number_is_read_or_refused(
        period in "-?P[-0-9]{0,12}[YMWD]?T?[-0-9.]{0,12}[HMS]?", number in "[-+0-9.eE]{1,20}", zone in "[A-Za-z/_+0-9:]{0,20}"
    ) {
        let text = format!(
            r#"{{"dataSchema":{{"dataSource":"d","granularitySpec":{{"segmentGranularity":{{"type":"period","period":"{period}","timeZone":"{zone}"}}}}}},
            "ioConfig":{{"topic":"t","inputFormat":{{"type":"json"}},"consumerProperties":{{"bootstrap.servers":"h:1"}},
            "taskDuration":"{period}","taskCount":"{number}"}},"tuningConfig":{{"maxTotalRows":"{number}","httpTimeout":"{period}"}}}}"#
        );
        check(&text);
    }
}
