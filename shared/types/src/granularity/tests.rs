use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(text: &str) -> TimestampMillis {
    text.parse().unwrap()
}

fn zoned(period: &str, zone: &str) -> Granularity {
    Granularity::from_json(&json!({"type": "period", "period": period, "timeZone": zone})).unwrap()
}

fn bucket(granularity: &Granularity, instant: &str) -> String {
    let bucket = granularity.bucket(at(instant)).unwrap();
    assert!(bucket.contains(at(instant)));
    format!("{bucket}").replace(":00.000Z", "Z")
}

#[test]
fn named_buckets_are_those_of_the_calendar() {
    for (name, expected) in [
        ("second", "2015-09-12T13:47:58.000Z/2015-09-12T13:47:59.000Z"),
        ("MINUTE", "2015-09-12T13:47Z/2015-09-12T13:48Z"),
        ("five_minute", "2015-09-12T13:45Z/2015-09-12T13:50Z"),
        ("TEN_MINUTE", "2015-09-12T13:40Z/2015-09-12T13:50Z"),
        ("FIFTEEN_MINUTE", "2015-09-12T13:45Z/2015-09-12T14:00Z"),
        ("THIRTY_MINUTE", "2015-09-12T13:30Z/2015-09-12T14:00Z"),
        ("HOUR", "2015-09-12T13:00Z/2015-09-12T14:00Z"),
        ("SIX_HOUR", "2015-09-12T12:00Z/2015-09-12T18:00Z"),
        ("EIGHT_HOUR", "2015-09-12T08:00Z/2015-09-12T16:00Z"),
        ("DAY", "2015-09-12T00:00Z/2015-09-13T00:00Z"),
        // A Saturday.
        ("WEEK", "2015-09-07T00:00Z/2015-09-14T00:00Z"),
        ("MONTH", "2015-09-01T00:00Z/2015-10-01T00:00Z"),
        ("QUARTER", "2015-07-01T00:00Z/2015-10-01T00:00Z"),
        ("YEAR", "2015-01-01T00:00Z/2016-01-01T00:00Z"),
        ("NONE", "2015-09-12T13:47:58.771Z/2015-09-12T13:47:58.772Z"),
        (
            "ALL",
            "-146136543-09-08T08:23:32.096Z/146140482-04-24T15:36:27.903Z",
        ),
    ] {
        let granularity = Granularity::from_json(&json!(name)).unwrap();
        assert_eq!(
            bucket(&granularity, "2015-09-12T13:47:58.771Z"),
            expected,
            "{name}"
        );
    }
    assert_eq!(
        bucket(&Granularity::Month, "1904-02-29T23:59:59.999Z"),
        "1904-02-01T00:00Z/1904-03-01T00:00Z",
        "before 1970"
    );
}

#[test]
fn days_in_a_zone_have_23_24_or_25_hours() {
    for (zone, period, instant, expected) in [
        (
            "America/New_York",
            "P1D",
            "2024-03-10T12:00Z",
            "2024-03-10T05:00Z/2024-03-11T04:00Z",
        ),
        (
            "America/New_York",
            "P1D",
            "2024-11-03T12:00Z",
            "2024-11-03T04:00Z/2024-11-04T05:00Z",
        ),
        (
            "America/New_York",
            "P1D",
            "2024-07-04T12:00Z",
            "2024-07-04T04:00Z/2024-07-05T04:00Z",
        ),
        (
            "Europe/Paris",
            "P1W",
            "2024-03-31T12:00Z",
            "2024-03-24T23:00Z/2024-03-31T22:00Z",
        ),
        (
            "Europe/Paris",
            "P1M",
            "2024-03-31T12:00Z",
            "2024-02-29T23:00Z/2024-03-31T22:00Z",
        ),
        (
            "Asia/Kolkata",
            "P1D",
            "2024-07-04T12:00Z",
            "2024-07-03T18:30Z/2024-07-04T18:30Z",
        ),
        // The clock goes forward at midnight: the day begins at 01:00.
        (
            "America/Sao_Paulo",
            "P1D",
            "2018-11-04T12:00Z",
            "2018-11-04T03:00Z/2018-11-05T02:00Z",
        ),
        // Midnight happens twice: the day begins with the first.
        (
            "America/Havana",
            "P1D",
            "2024-11-03T12:00Z",
            "2024-11-03T04:00Z/2024-11-04T05:00Z",
        ),
        // The 30th does not exist.
        (
            "Pacific/Apia",
            "P1D",
            "2011-12-30T00:00Z",
            "2011-12-29T10:00Z/2011-12-30T10:00Z",
        ),
        (
            "Pacific/Apia",
            "P1D",
            "2011-12-30T10:00Z",
            "2011-12-30T10:00Z/2011-12-31T10:00Z",
        ),
        (
            "+05:30",
            "P1D",
            "2024-07-04T12:00Z",
            "2024-07-03T18:30Z/2024-07-04T18:30Z",
        ),
        (
            "-08:00",
            "P1Y",
            "2024-01-01T07:59Z",
            "2023-01-01T08:00Z/2024-01-01T08:00Z",
        ),
    ] {
        assert_eq!(
            bucket(&zoned(period, zone), instant),
            expected,
            "{period} in {zone}"
        );
    }
}

#[test]
fn hours_in_a_zone_follow_its_clock() {
    for (zone, period, instant, expected) in [
        // The hour that happens twice is two buckets.
        (
            "America/New_York",
            "PT1H",
            "2024-11-03T05:30Z",
            "2024-11-03T05:00Z/2024-11-03T06:00Z",
        ),
        (
            "America/New_York",
            "PT1H",
            "2024-11-03T06:30Z",
            "2024-11-03T06:00Z/2024-11-03T07:00Z",
        ),
        (
            "Asia/Kathmandu",
            "PT1H",
            "2024-07-04T12:00Z",
            "2024-07-04T11:15Z/2024-07-04T12:15Z",
        ),
        // Half an hour goes by twice.
        (
            "Australia/Lord_Howe",
            "PT1H",
            "2024-04-06T14:45Z",
            "2024-04-06T14:00Z/2024-04-06T15:30Z",
        ),
        (
            "Australia/Lord_Howe",
            "PT1H",
            "2024-04-06T15:15Z",
            "2024-04-06T14:00Z/2024-04-06T15:30Z",
        ),
        (
            "Australia/Lord_Howe",
            "PT1H",
            "2024-04-06T15:30Z",
            "2024-04-06T15:30Z/2024-04-06T16:30Z",
        ),
        // Cut at local midnight in summer and winter; shorter and longer on the days of change.
        (
            "America/New_York",
            "PT6H",
            "2024-07-04T12:00Z",
            "2024-07-04T10:00Z/2024-07-04T16:00Z",
        ),
        (
            "America/New_York",
            "PT6H",
            "2024-01-04T12:00Z",
            "2024-01-04T11:00Z/2024-01-04T17:00Z",
        ),
        (
            "America/New_York",
            "PT6H",
            "2024-03-10T08:00Z",
            "2024-03-10T05:00Z/2024-03-10T10:00Z",
        ),
        (
            "America/New_York",
            "PT6H",
            "2024-11-03T06:30Z",
            "2024-11-03T04:00Z/2024-11-03T11:00Z",
        ),
        (
            "+00:30",
            "PT1H",
            "2024-07-04T12:00Z",
            "2024-07-04T11:30Z/2024-07-04T12:30Z",
        ),
    ] {
        assert_eq!(
            bucket(&zoned(period, zone), instant),
            expected,
            "{period} in {zone}"
        );
    }
}

#[test]
fn an_origin_moves_the_borders() {
    for (document, instant, expected) in [
        (
            json!({"type": "period", "period": "P2D", "origin": "2024-01-02"}),
            "2024-01-03T12:00Z",
            "2024-01-02T00:00Z/2024-01-04T00:00Z",
        ),
        (
            json!({"type": "period", "period": "P1D", "timeZone": "America/New_York", "origin": "2024-01-01T06:00-05:00"}),
            "2024-07-04T09:59Z",
            "2024-07-03T10:00Z/2024-07-04T10:00Z",
        ),
        (
            json!({"type": "period", "period": "P1M", "origin": "2024-01-31"}),
            "2024-02-28T12:00Z",
            "2024-01-31T00:00Z/2024-02-29T00:00Z",
        ),
        (
            json!({"type": "period", "period": "PT1H", "origin": "2024-01-01T00:20Z"}),
            "2024-07-04T12:00Z",
            "2024-07-04T11:20Z/2024-07-04T12:20Z",
        ),
        (
            json!({"type": "duration", "duration": "7200000", "origin": "2024-01-01T01:00Z"}),
            "2024-07-04T12:00Z",
            "2024-07-04T11:00Z/2024-07-04T13:00Z",
        ),
        (
            json!({"type": "period", "period": "P2M"}),
            "2024-02-15",
            "2024-01-01T00:00Z/2024-03-01T00:00Z",
        ),
        // A week without an origin begins on Monday; two weeks count from 1970-01-01, a Thursday.
        (
            json!({"type": "period", "period": "P1W"}),
            "1970-01-01",
            "1969-12-29T00:00Z/1970-01-05T00:00Z",
        ),
        (json!("P2W"), "1970-01-05", "1970-01-01T00:00Z/1970-01-15T00:00Z"),
        (json!("P7D"), "1970-01-05", "1970-01-01T00:00Z/1970-01-08T00:00Z"),
    ] {
        let granularity = Granularity::from_json(&document).unwrap();
        assert_eq!(bucket(&granularity, instant), expected, "{document}");
    }
}

#[test]
fn a_document_reads_back_and_equal_cuts_are_equal() {
    let hour = json!({"type": "period", "period": "PT1H", "timeZone": "UTC", "origin": null});
    assert_eq!(Granularity::from_json(&hour).unwrap(), Granularity::Hour);
    assert_eq!(
        Granularity::from_json(&json!("PT60M")).unwrap(),
        Granularity::Hour
    );
    assert_eq!(
        Granularity::from_json(&json!({"type": "NONE"})).unwrap(),
        Granularity::None
    );
    assert_eq!(
        Granularity::from_json(&json!({"type": "all"})).unwrap(),
        Granularity::All
    );
    assert_eq!(
        Granularity::from_json(&json!({"type": "duration", "duration": 3_600_000})).unwrap(),
        Granularity::Hour
    );
    let documents = Granularity::names().map(|name| json!(name)).chain([
        json!("PT2H"),
        json!("P1DT12H"),
        json!("PT24H"),
        json!("PT0.5S"),
        json!("P2Y"),
        json!("P7D"),
        json!({"type": "period", "period": "P1D", "timeZone": "Europe/Paris", "origin": "2020-01-01T00:00+01:00"}),
        json!({"type": "period", "period": "P1W", "timeZone": "+05:30"}),
        json!({"type": "duration", "duration": 1, "origin": "1969-12-31"}),
    ]);
    for document in documents {
        let granularity = Granularity::from_json(&document).unwrap();
        let written = granularity.to_json();
        assert_eq!(
            Granularity::from_json(&written),
            Ok(granularity.clone()),
            "{document} as {written}"
        );
        let text = serde_json::to_string(&granularity).unwrap();
        assert_eq!(serde_json::from_str::<Granularity>(&text).unwrap(), granularity);
    }
}

#[test]
fn a_document_that_is_no_granularity_says_what_is_wrong() {
    for (document, part) in [
        (json!("fortnight"), "one of NONE, SECOND"),
        (json!(5), "not a number"),
        (json!(null), "not null"),
        (json!({}), "needs `type`"),
        (json!({"type": "hourly"}), "\"hourly\" is unknown"),
        (json!({"type": "period"}), "needs `period`"),
        (json!({"type": "period", "period": "1h"}), "did you mean PT1H?"),
        (json!({"type": "period", "period": "PT0S"}), "it is zero"),
        (json!({"type": "period", "period": "P1MT1H"}), "cannot be mixed"),
        (
            json!({"type": "period", "period": "P20000Y"}),
            "longer than 10,000 years",
        ),
        (
            json!({"type": "period", "period": "P1D", "timeZone": "Mars"}),
            "\"Mars\" is unknown",
        ),
        (
            json!({"type": "period", "period": "P1D", "origin": "x"}),
            "`origin`",
        ),
        (
            json!({"type": "period", "period": "P1D", "timezone": "UTC"}),
            "no field `timezone`",
        ),
        (json!({"type": "duration"}), "needs `duration`"),
        (json!({"type": "duration", "duration": 0}), "at least 1 ms"),
        (
            json!({"type": "duration", "duration": true}),
            "number of milliseconds",
        ),
    ] {
        let message = Granularity::from_json(&document).unwrap_err().to_string();
        assert!(message.contains(part), "{document}: {message}");
    }
}

#[test]
fn finer_ones_come_largest_first_in_the_same_zone() {
    let names = |granularity: &Granularity| {
        granularity
            .finer()
            .iter()
            .map(|finer| finer.name().unwrap_or("?"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        names(&Granularity::Hour),
        "THIRTY_MINUTE FIFTEEN_MINUTE TEN_MINUTE FIVE_MINUTE MINUTE SECOND"
    );
    assert_eq!(names(&Granularity::All).split(' ').count(), 14);
    assert_eq!(names(&Granularity::Month).split(' ').next(), Some("WEEK"));
    assert_eq!(names(&Granularity::Second), "");
    assert_eq!(names(&Granularity::None), "");
    let finer = zoned("P1M", "Europe/Paris").finer();
    assert_eq!(
        finer[..2],
        [zoned("P1W", "Europe/Paris"), zoned("P1D", "Europe/Paris")]
    );
}

fn kinds() -> Vec<Granularity> {
    let named = Granularity::names().filter_map(Granularity::from_name);
    let zones = [
        "America/New_York",
        "Pacific/Apia",
        "Australia/Lord_Howe",
        "Pacific/Kiritimati",
        "Etc/GMT+12",
        "Europe/Dublin",
    ];
    let periods = [
        "PT1M", "PT1H", "PT6H", "PT7H", "P1D", "P3D", "P1W", "P2W", "P1M", "P1Y", "P100Y",
    ];
    let in_zones = zones
        .iter()
        .flat_map(|zone| periods.iter().map(|period| zoned(period, zone)));
    let origin = json!({"type": "period", "period": "P1M", "timeZone": "America/Havana", "origin": "2001-01-31T00:30Z"});
    named
        .chain(in_zones)
        .chain([Granularity::from_json(&origin).unwrap()])
        .collect()
}

/// B02: no panic and no missing bucket near the borders, for every granularity and zone.
#[test]
fn b02_every_accepted_instant_has_a_bucket_up_to_the_borders() {
    let half_hour = 30 * MINUTE;
    for granularity in kinds() {
        let mut cache = crate::BucketCache::new(granularity.clone());
        for border in [TimestampMillis::MIN.0, TimestampMillis::MAX.0] {
            for step in [-half_hour, -1, 0, 1, half_hour, DAY, -DAY, 400 * DAY, -400 * DAY] {
                let instant = TimestampMillis(border + step);
                let bucket = granularity.bucket(instant);
                assert_eq!(cache.bucket(instant), bucket, "{granularity:?} {instant}");
                if instant.is_in_range() {
                    let bucket = bucket.unwrap();
                    assert!(bucket.contains(instant) && Interval::ETERNITY.encloses(bucket));
                    assert_eq!(bucket.to_string().parse(), Ok(bucket));
                }
            }
        }
        for instant in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
            let bucket = granularity.bucket(TimestampMillis(instant));
            assert_eq!(bucket, None, "{granularity:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn buckets_cut_time_without_gap_or_overlap(
        millis in prop_oneof![
            TimestampMillis::MIN.0..=TimestampMillis::MAX.0,
            // Where offsets change often.
            -3_000_000_000_000_i64..3_000_000_000_000,
        ]
    ) {
        let instant = TimestampMillis(millis);
        for granularity in kinds() {
            let mut cache = crate::BucketCache::new(granularity.clone());
            let bucket = granularity.bucket(instant).unwrap();
            prop_assert!(bucket.contains(instant), "{granularity:?}");
            prop_assert_eq!(cache.bucket(instant), Some(bucket));
            let last = TimestampMillis(bucket.end().0 - 1);
            for inside in [bucket.start(), last] {
                prop_assert_eq!(granularity.bucket(inside), Some(bucket), "{:?} at {}", granularity, inside);
                prop_assert_eq!(cache.bucket(inside), Some(bucket));
            }
            if granularity != Granularity::All {
                let next = granularity.bucket(bucket.end()).unwrap();
                prop_assert_eq!(next.start(), bucket.end(), "{:?}", granularity);
                prop_assert_eq!(cache.bucket(bucket.end()), Some(next));
            }
        }
    }

    #[test]
    fn buckets_of_one_time_zone_agree_with_an_independent_calendar(
        millis in -3_000_000_000_000_i64..3_000_000_000_000
    ) {
        use jiff::{Timestamp, ToSpan};
        for name in ["America/New_York", "Europe/Paris", "Asia/Kolkata", "Australia/Sydney"] {
            let zone = jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap();
            let there = Timestamp::from_millisecond(millis).unwrap().to_zoned_datetime(zone);
            let start = there.start_of_day().unwrap();
            let end = start.checked_add(1.day()).unwrap().start_of_day().unwrap();
            let bucket = zoned("P1D", name).bucket(TimestampMillis(millis)).unwrap();
            prop_assert_eq!(bucket.start().0, start.timestamp().as_millisecond());
            prop_assert_eq!(bucket.end().0, end.timestamp().as_millisecond());
        }
    }

    #[test]
    fn no_document_makes_the_reader_panic(text in ".{0,40}", period in "[-P0-9YMWDTHS.]{0,20}", zone in ".{0,20}") {
        let _ = Granularity::from_text(&text);
        let _ = Granularity::from_json(&json!({"type": "period", "period": period, "timeZone": zone}));
        let _ = Granularity::from_json(&json!({"type": text, "duration": period}));
    }
}
