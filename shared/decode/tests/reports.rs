//! What people hit in this field, each as a test of its whole kind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

mod support;

use support::{decoder, row, schema, with_format};
use tidegate_decode::{Outcome, TimeBounds};
use tidegate_spec::*;

const TIME: &str = r#""time":"2024-05-01T10:00:00Z""#;

fn reason(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Unparseable(why) => (why.field, why.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn b01_a_tombstone_an_empty_value_and_json_null_are_different_things() {
    let mut decoder = decoder(&schema(&[("a", DimensionKind::String)], &[]));
    assert_eq!(decoder.decode(None, |_| panic!()), Outcome::Tombstone);
    for empty in ["", "  \n", "null", "[]"] {
        assert_eq!(
            decoder.decode(Some(&mut empty.as_bytes().to_vec()), |_| panic!()),
            Outcome::Empty,
            "{empty:?}"
        );
    }
    assert_eq!(
        row(&mut decoder, format!("{{{TIME},\"a\":\"x\"}}").as_bytes()).unwrap(),
        "2024-05-01T10:00:00.000Z|x"
    );
}

#[test]
fn b02_a_time_that_no_interval_can_hold_is_unparseable_and_its_neighbours_are_rows() {
    let mut decoder = decoder(&schema(&[], &[]));
    for time in [i64::MAX, i64::MIN, 253_402_128_000_001, -377_673_580_800_001] {
        let (field, why) = reason(row(&mut decoder, format!(r#"{{"time":{time}}}"#).as_bytes()).unwrap_err());
        assert_eq!(field, "time");
        assert!(why.contains("outside"), "{why}");
        assert!(row(&mut decoder, b"{\"time\":0}").is_ok());
    }
    for time in [0_i64, -1, 253_402_128_000_000, -377_673_580_800_000] {
        assert!(
            row(&mut decoder, format!(r#"{{"time":{time}}}"#).as_bytes()).is_ok(),
            "{time}"
        );
    }
    for text in ["300000-01-01T00:00:00Z", "246140482-04-24T15:36:27.903Z"] {
        reason(row(&mut decoder, format!(r#"{{"time":"{text}"}}"#).as_bytes()).unwrap_err());
    }
}

#[test]
fn b04_nothing_of_a_bad_message_is_left_for_the_good_ones_after_it() {
    let bad: Vec<Vec<u8>> = vec![
        br#"{"time":"2024-05-01T10:0"#.to_vec(),
        br#"{"time":0,"a":12"#.to_vec(),
        br#"{"time":0,"a":"\u00"#.to_vec(),
        br#"{"time":0,"a":1}}"#.to_vec(),
        br#"{"time":0}{"time":0}"#.to_vec(),
        br#"{"time":0,"a":12abc}"#.to_vec(),
        br#"{"time":0,"a":007}"#.to_vec(),
        br#"{"time":0,"new":1,"a":{"#.to_vec(),
        b"{\"time\":0,\"a\":\"\xff\"}".to_vec(),
        br#"{"time":0,"n":"abc","other":5}"#.to_vec(),
    ];
    let mut decoder = decoder(&schema(
        &[("a", DimensionKind::String), ("n", DimensionKind::Long)],
        &[],
    ));
    for number in 0..1_000_usize {
        let broken = &bad[number % bad.len()];
        reason(row(&mut decoder, broken).expect_err(&String::from_utf8_lossy(broken)));
        let good = format!(r#"{{"time":{number},"a":"v{number}","n":{number}}}"#);
        let seen = row(&mut decoder, good.as_bytes()).unwrap();
        assert!(seen.ends_with(&format!("|v{number}|{number}L")), "{seen}");
    }
}

#[test]
fn b04_a_refused_record_registers_no_column() {
    let mut schema = schema(&[], &[("n", MetricKind::LongSum)]);
    schema.dimensions.discover = true;
    let mut decoder = decoder(&schema);
    reason(row(&mut decoder, br#"{"time":0,"ghost":"x","n":"no number"}"#).unwrap_err());
    let mut bytes = br#"{"time":0,"real":"y","n":1}"#.to_vec();
    decoder.decode(Some(&mut bytes), |row| {
        let names: Vec<_> = row
            .discovered()
            .map(|(number, name, _)| (number, name.to_owned()))
            .collect();
        assert_eq!(names, [(0, "real".to_owned())]);
    });
}

#[test]
fn b08_of_a_repeated_key_the_last_value_counts_everywhere() {
    let schema = schema(
        &[("a", DimensionKind::String), ("j", DimensionKind::Json)],
        &[("m", MetricKind::LongSum)],
    );
    let mut decoder = decoder(&schema);
    for record in [
        r#"{"time":5,"time":0,"a":1,"a":2,"j":{"k":1,"k":2},"m":1,"m":7}"#,
        r#"{"time":"bad","time":0,"a":1,"\u0061":2,"j":0,"j":{"k":1,"\u006b":2},"m":"x","m":7}"#,
    ] {
        assert_eq!(
            row(&mut decoder, record.as_bytes()).unwrap(),
            "1970-01-01T00:00:00.000Z|2|{\"k\":2}|7L"
        );
    }
    let mut discovering = support::decoder(&support::schema(&[], &[]));
    for _ in 0..2 {
        assert_eq!(
            row(&mut discovering, br#"{"time":0,"x":1,"x":2}"#).unwrap(),
            "1970-01-01T00:00:00.000Z|x=2"
        );
    }
    let path = JsonFormat {
        fields: vec![FlattenField {
            name: "a".into(),
            source: FlattenSource::Path(vec![PathStep::Key("o".into()), PathStep::Key("k".into())]),
        }],
        use_field_discovery: None,
    };
    let mut flattened = with_format(&schema, path);
    assert_eq!(
        row(&mut flattened, br#"{"time":0,"o":{"k":1},"o":{"k":3,"k":4}}"#).unwrap(),
        "1970-01-01T00:00:00.000Z|4|∅|∅"
    );
}

#[test]
fn b09_every_64_bit_integer_is_exact_and_what_is_beyond_is_never_rounded() {
    let schema = schema(
        &[("d", DimensionKind::Long), ("s", DimensionKind::String)],
        &[("m", MetricKind::LongMax)],
    );
    let mut decoder = decoder(&schema);
    for number in [
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "0",
        "-1",
    ] {
        for written in [number.to_owned(), format!("\"{number}\"")] {
            let record = format!(r#"{{"time":0,"d":{written},"s":{written},"m":{written}}}"#);
            let seen = row(&mut decoder, record.as_bytes()).unwrap();
            assert_eq!(
                seen,
                format!("1970-01-01T00:00:00.000Z|{number}L|{number}|{number}L")
            );
        }
    }
    for (written, value) in [("1e3", 1000), ("1.0", 1), ("\"1e3\"", 1000), ("-0.0", 0)] {
        let seen = row(&mut decoder, format!(r#"{{"time":0,"d":{written}}}"#).as_bytes()).unwrap();
        assert_eq!(
            seen,
            format!("1970-01-01T00:00:00.000Z|{value}L|∅|∅"),
            "{written}"
        );
    }
    let beyond = [
        "9223372036854775808",
        "18446744073709551615",
        "1e30",
        "1.5",
        "\"1.5\"",
        "\"9223372036854775808\"",
        "1e19",
    ];
    for written in beyond {
        let (field, _) =
            reason(row(&mut decoder, format!(r#"{{"time":0,"d":{written}}}"#).as_bytes()).unwrap_err());
        assert_eq!(field, "d", "{written}");
    }
    // Beyond what the parser holds exactly: the record, not a rounded number.
    for written in ["1000000000000000000000000000000", "1e400", "-1e400"] {
        reason(row(&mut decoder, format!(r#"{{"time":0,"d":{written}}}"#).as_bytes()).expect_err(written));
    }
    let seen = row(&mut decoder, br#"{"time":0,"s":18446744073709551615}"#).unwrap();
    assert_eq!(seen, "1970-01-01T00:00:00.000Z|∅|18446744073709551615|∅");
}

#[test]
fn b10_a_dotted_key_is_not_a_path() {
    let schema = schema(
        &[("a.b", DimensionKind::String), ("nested", DimensionKind::String)],
        &[("m.x", MetricKind::LongSum)],
    );
    let format = JsonFormat {
        fields: vec![FlattenField {
            name: "nested".into(),
            source: FlattenSource::Path(vec![PathStep::Key("a".into()), PathStep::Key("b".into())]),
        }],
        use_field_discovery: None,
    };
    let mut decoder = with_format(&schema, format);
    for (record, expected) in [
        (r#"{"time":0,"a.b":"dot","m.x":1}"#, "dot|∅|1L"),
        (r#"{"time":0,"a":{"b":"in"}}"#, "∅|in|∅"),
        (r#"{"time":0,"a.b":"dot","a":{"b":"in"},"m.x":2}"#, "dot|in|2L"),
    ] {
        let seen = row(&mut decoder, record.as_bytes()).unwrap();
        assert_eq!(seen, format!("1970-01-01T00:00:00.000Z|{expected}"), "{record}");
    }
    let mut odd = support::decoder(&support::schema(
        &[
            ("$", DimensionKind::String),
            ("[0]", DimensionKind::String),
            (" ", DimensionKind::String),
            ("", DimensionKind::String),
            ("\"", DimensionKind::String),
            ("🦀", DimensionKind::String),
        ],
        &[],
    ));
    let record = r#"{"time":0,"$":1,"[0]":2," ":3,"":4,"\"":5,"🦀":6}"#;
    assert_eq!(
        row(&mut odd, record.as_bytes()).unwrap(),
        "1970-01-01T00:00:00.000Z|1|2|3|4|5|6"
    );
}

#[test]
fn b13_a_missing_time_is_unparseable_unless_there_is_a_missing_value() {
    let mut schema = schema(&[], &[]);
    let absent = ["{}", r#"{"time":null}"#, r#"{"time":""}"#];
    let wrong = [
        r#"{"time":true}"#,
        r#"{"time":{}}"#,
        r#"{"time":[1]}"#,
        r#"{"time":"null"}"#,
    ];
    let mut strict = decoder(&schema);
    for record in absent {
        assert_eq!(
            reason(row(&mut strict, record.as_bytes()).unwrap_err()),
            ("time".into(), "no timestamp".into())
        );
    }
    schema.timestamp.missing_value = Some("2000-01-01T00:00:00Z".parse().unwrap());
    let mut lenient = decoder(&schema);
    for record in absent {
        assert_eq!(
            row(&mut lenient, record.as_bytes()).unwrap(),
            "2000-01-01T00:00:00.000Z"
        );
    }
    for record in wrong {
        assert_eq!(
            reason(row(&mut lenient, record.as_bytes()).unwrap_err()).0,
            "time",
            "{record}"
        );
    }
}

#[test]
fn bad_input_of_every_kind_ends_in_its_bucket() {
    let mut decoder = decoder(&schema(&[("a", DimensionKind::String)], &[]));
    let deep = |depth: usize| format!("{{{TIME},\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    reason(row(&mut decoder, deep(10_000).as_bytes()).unwrap_err());
    reason(row(&mut decoder, "[".repeat(10_000).as_bytes()).unwrap_err());
    assert!(row(&mut decoder, deep(500).as_bytes()).is_ok());
    for bad in ["1", "\"text\"", "[1]", "true", "{\"time\":0", "nul", "\u{0}"] {
        reason(row(&mut decoder, bad.as_bytes()).expect_err(bad));
    }
    // A byte order mark is skipped.
    let marked = format!("\u{feff}{{{TIME},\"a\":\"x\"}}");
    assert_eq!(
        row(&mut decoder, marked.as_bytes()).unwrap(),
        "2024-05-01T10:00:00.000Z|x"
    );
    let long = "é".repeat(1_000_000);
    let seen = row(&mut decoder, format!("{{{TIME},\"a\":\"{long}\"}}").as_bytes()).unwrap();
    assert_eq!(seen.len(), "2024-05-01T10:00:00.000Z|".len() + 2_000_000);
    let mut bounded = tidegate_decode::Decoder::new(
        &schema(&[], &[]),
        &InputFormat::Json(JsonFormat::default()),
        TimeBounds::default(),
        100,
    )
    .unwrap();
    assert_eq!(
        bounded.decode(Some(&mut [b' '; 101]), |_| panic!()),
        Outcome::Oversized
    );
}

#[test]
fn bounds_are_inclusive_and_are_compared_before_flooring() {
    let mut schema = schema(&[], &[]);
    schema.granularity.query = tidegate_types::Granularity::Hour;
    let at = |text: &str| Some(text.parse().unwrap());
    let bounds = TimeBounds {
        minimum: at("2024-05-01T10:30:00Z"),
        maximum: at("2024-05-01T11:30:00Z"),
    };
    let mut decoder =
        tidegate_decode::Decoder::new(&schema, &InputFormat::Json(JsonFormat::default()), bounds, 1_000)
            .unwrap();
    for (time, expected) in [
        ("10:29:59.999", Err(Outcome::Rejected)),
        ("10:30:00", Ok("2024-05-01T10:00:00.000Z".to_owned())),
        ("11:30:00", Ok("2024-05-01T11:00:00.000Z".to_owned())),
        ("11:30:00.001", Err(Outcome::Rejected)),
    ] {
        assert_eq!(
            row(
                &mut decoder,
                format!(r#"{{"time":"2024-05-01T{time}Z"}}"#).as_bytes()
            ),
            expected,
            "{time}"
        );
    }
}

#[test]
fn values_become_the_type_of_their_column() {
    let schema = schema(
        &[
            ("s", DimensionKind::String),
            ("j", DimensionKind::Json),
            ("d", DimensionKind::Double),
        ],
        &[("value", MetricKind::DoubleMax), ("count", MetricKind::Count)],
    );
    let mut decoder = decoder(&schema);
    for (record, expected) in [
        (
            r#""s":"x","j":"x","d":"12.5","value":"12.5""#,
            "x|\"x\"|12.5D|12.5D|1L",
        ),
        (r#""s":1.0,"j":1.0,"d":3,"value":true"#, "1.0|1.0|3.0D|1.0D|1L"),
        (
            r#""s":true,"j":[1,{"a":null}],"d":null"#,
            "true|[1,{\"a\":null}]|∅|∅|1L",
        ),
        (
            r#""s":["b","a","a"],"value":"NaN""#,
            "[\"a\",\"a\",\"b\"]|∅|∅|NaND|1L",
        ),
        (r#""s":[],"j":{},"d":"" "#, "∅|{}|∅|∅|1L"),
        (r#""s":["one"]"#, "one|∅|∅|∅|1L"),
        (r#""s":{"k":"Łódź"}"#, "{\"k\":\"Łódź\"}|∅|∅|∅|1L"),
    ] {
        let seen = row(&mut decoder, format!("{{\"time\":0,{record}}}").as_bytes()).unwrap();
        assert_eq!(seen, format!("1970-01-01T00:00:00.000Z|{expected}"), "{record}");
    }
}

#[test]
fn only_listed_fields_are_seen_when_field_discovery_is_off() {
    let mut schema = schema(&[("a", DimensionKind::String), ("b", DimensionKind::String)], &[]);
    schema.dimensions.discover = true;
    let field = |name: &str| FlattenField {
        name: name.into(),
        source: FlattenSource::Root(name.into()),
    };
    let format = JsonFormat {
        fields: vec![field("time"), field("a")],
        use_field_discovery: Some(false),
    };
    let mut decoder = with_format(&schema, format);
    assert_eq!(
        row(&mut decoder, br#"{"time":0,"a":1,"b":2,"c":3}"#).unwrap(),
        "1970-01-01T00:00:00.000Z|1|∅"
    );
}
