//! No bytes make it panic, and what it reads is what an independent parser reads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

mod support;

use proptest::prelude::*;
use support::{decoder, row, schema};
use tidegate_spec::DimensionKind;

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<i32>().prop_map(|eighths| serde_json::Value::from(f64::from(eighths) / 8.0)),
        ".*".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut decoder = decoder(&schema(&[], &[]));
        let _ = row(&mut decoder, &bytes);
    }

    #[test]
    fn no_damage_to_a_record_makes_it_panic_or_spoils_the_next(
        value in json(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut decoder = decoder(&schema(&[("v", DimensionKind::Json)], &[]));
        let mut bytes = serde_json::json!({ "time": 0, "v": value }).to_string().into_bytes();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = row(&mut decoder, &bytes);
        let next = row(&mut decoder, br#"{"time":0,"v":"good"}"#).unwrap();
        prop_assert_eq!(next, "1970-01-01T00:00:00.000Z|\"good\"");
    }

    #[test]
    fn a_json_column_holds_the_same_value_as_another_parser_reads(value in json()) {
        prop_assume!(!value.is_null());
        let mut decoder = decoder(&schema(&[("v", DimensionKind::Json)], &[]));
        let record = serde_json::json!({ "time": 0, "v": value }).to_string();
        let seen = row(&mut decoder, record.as_bytes()).unwrap();
        let text = seen.split_once('|').unwrap().1;
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        prop_assert_eq!(read, value);
    }
}
