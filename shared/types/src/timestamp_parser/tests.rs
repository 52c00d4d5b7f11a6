use proptest::prelude::*;

use super::*;

fn text(parser: &TimestampParser, text: &str) -> Result<String, TimestampError> {
    parser.parse_str(text).map(|time| time.to_string())
}

#[test]
fn auto_reads_numbers_as_milliseconds_and_everything_else_as_iso() {
    let auto = TimestampParser::auto();
    for (given, time) in [
        ("1442018818771", "2015-09-12T00:46:58.771Z"),
        ("-1", "1969-12-31T23:59:59.999Z"),
        ("2008", "1970-01-01T00:00:02.008Z"),
        ("2015-09-12T00:46:58.771Z", "2015-09-12T00:46:58.771Z"),
        ("2015-09-12", "2015-09-12T00:00:00.000Z"),
        ("\"2015-09-12 00:46:58\"", "2015-09-12T00:46:58.000Z"),
        ("  2015-09-12  ", "2015-09-12T00:00:00.000Z"),
        ("2015-09-12 00:46:58 UTC", "2015-09-12T00:46:58.000Z"),
        (
            "2015-09-12 00:46:58 America/Los_Angeles",
            "2015-09-12T07:46:58.000Z",
        ),
    ] {
        assert_eq!(text(&auto, given).as_deref(), Ok(time), "{given}");
    }
    assert_eq!(auto.parse_i64(1_442_018_818_771).unwrap().0, 1_442_018_818_771);
    assert_eq!(auto.parse_f64(1_442_018_818_771.9).unwrap().0, 1_442_018_818_771);
}

#[test]
fn iso_and_patterns_also_take_numbers_by_their_digits() {
    let year = TimestampParser::iso().parse_i64(2008).unwrap();
    assert_eq!(year.to_string(), "2008-01-01T00:00:00.000Z");
    assert_eq!(TimestampParser::iso().parse_f64(2008.0), Ok(year));
    let day = TimestampParser::pattern("yyyyMMdd").unwrap();
    assert_eq!(
        day.parse_i64(20_150_912).unwrap().to_string(),
        "2015-09-12T00:00:00.000Z"
    );
    assert_eq!(day.parse_f64(2015.5), Err(TimestampError::WrongFormat));
}

#[test]
fn each_unit_gives_the_same_instant() {
    for (parser, number) in [
        (TimestampParser::posix(), 1_700_000_000),
        (TimestampParser::ruby(), 1_700_000_000),
        (TimestampParser::millis(), 1_700_000_000_000),
        (TimestampParser::micro(), 1_700_000_000_000_000),
        (TimestampParser::nano(), 1_700_000_000_000_000_000_i64),
    ] {
        assert_eq!(parser.parse_i64(number).unwrap().0, 1_700_000_000_000);
        assert_eq!(
            parser.parse_str(&number.to_string()).unwrap().0,
            1_700_000_000_000
        );
        assert_eq!(parser.parse_f64(number as f64).unwrap().0, 1_700_000_000_000);
    }
    for parser in [TimestampParser::micro(), TimestampParser::nano()] {
        assert_eq!(
            parser.parse_i64(-1).unwrap().0,
            -1,
            "the millisecond that holds the instant"
        );
    }
}

#[test]
fn a_fraction_of_a_second_keeps_its_milliseconds_as_number_and_as_text() {
    for (given, millis) in [
        ("1700000000.123", 1_700_000_000_123),
        ("1.001", 1_001),
        ("1358347307.435447", 1_358_347_307_435),
        ("0.9999999", 1_000),
        ("0.999999", 999),
        ("-0.0005", -1),
        ("-1.5", -1_500),
    ] {
        let ruby = TimestampParser::ruby();
        assert_eq!(ruby.parse_str(given).map(|time| time.0), Ok(millis), "{given}");
        assert_eq!(
            ruby.parse_f64(given.parse().unwrap()).map(|time| time.0),
            Ok(millis),
            "{given}"
        );
    }
    assert_eq!(TimestampParser::posix().parse_f64(-1.5).unwrap().0, -1_000);
    assert_eq!(TimestampParser::posix().parse_str("-1.5").unwrap().0, -1_000);
}

/// B02: the range is checked where the row is read.
#[test]
fn b02_a_time_beyond_the_accepted_range_is_refused_in_every_format() {
    let formats = [
        TimestampParser::auto(),
        TimestampParser::millis(),
        TimestampParser::posix(),
        TimestampParser::micro(),
        TimestampParser::ruby(),
    ];
    for parser in &formats {
        for number in [i64::MAX, i64::MIN, i64::MAX - 1] {
            assert_eq!(
                parser.parse_i64(number),
                Err(TimestampError::OutOfRange),
                "{parser:?} {number}"
            );
            assert_eq!(
                parser.parse_str(&number.to_string()),
                Err(TimestampError::OutOfRange)
            );
        }
    }
    let nano = TimestampParser::nano();
    assert!(nano.parse_i64(i64::MAX).is_ok(), "2262");
    assert_eq!(
        nano.parse_str("99999999999999999999"),
        Err(TimestampError::OutOfRange)
    );
    for number in [1e19, -1e19, 1e300] {
        for parser in formats.iter().chain([&nano]) {
            assert_eq!(
                parser.parse_f64(number),
                Err(TimestampError::OutOfRange),
                "{parser:?} {number}"
            );
        }
    }
    let iso = TimestampParser::iso();
    for (given, expected) in [
        ("9999-12-30T00:00:00.000Z", Ok(TimestampMillis::MAX)),
        ("9999-12-30T00:00:00.001Z", Err(TimestampError::OutOfRange)),
        ("-9998-01-01", Ok(TimestampMillis::MIN)),
        ("-9999-12-31T23:59:59.999", Err(TimestampError::OutOfRange)),
        ("300000-01-01", Err(TimestampError::OutOfRange)),
        ("20150912", Err(TimestampError::OutOfRange)),
    ] {
        assert_eq!(iso.parse_str(given), expected, "{given}");
    }
}

#[test]
fn what_is_no_time_says_which_kind_of_wrong_it_is() {
    for parser in [
        TimestampParser::auto(),
        TimestampParser::iso(),
        TimestampParser::millis(),
    ] {
        for given in [
            "null", "true", "x", "1e3", "0x10", "1.", ".5", "--1", "1 2", "\u{0}", "١٢",
        ] {
            assert_eq!(
                parser.parse_str(given),
                Err(TimestampError::WrongFormat),
                "{parser:?} {given}"
            );
        }
        for given in ["", "  ", "\"\""] {
            assert_eq!(
                parser.parse_str(given),
                Err(TimestampError::Empty),
                "{parser:?} {given:?}"
            );
        }
        assert_eq!(parser.parse_f64(f64::NAN), Err(TimestampError::WrongFormat));
        assert_eq!(parser.parse_f64(f64::INFINITY), Err(TimestampError::WrongFormat));
    }
}

proptest! {
    #[test]
    fn no_text_and_no_number_makes_a_parser_panic_or_leave_the_range(
        given in ".{0,40}", digits in "[-+0-9TZ:. W,]{0,30}", number: i64, float: f64
    ) {
        let parsers = [
            TimestampParser::auto(), TimestampParser::iso(), TimestampParser::posix(), TimestampParser::ruby(),
            TimestampParser::micro(), TimestampParser::nano(), TimestampParser::millis(),
            TimestampParser::pattern("yyyy-MM-dd'T'HH:mm:ss.SSSZ").unwrap(),
            TimestampParser::pattern("EEE MMM d hh:mm a z yy").unwrap(),
        ];
        for parser in &parsers {
            for result in [
                parser.parse_str(&given), parser.parse_str(&digits), parser.parse_i64(number), parser.parse_f64(float),
            ] {
                prop_assert!(result.is_err() || result.is_ok_and(TimestampMillis::is_in_range));
            }
        }
    }

    #[test]
    fn a_pattern_of_any_text_compiles_or_is_refused(pattern in ".{0,30}", given in ".{0,30}") {
        if let Ok(parser) = TimestampParser::pattern(&pattern) {
            let _ = parser.parse_str(&given);
        }
    }

    #[test]
    fn every_accepted_instant_is_read_back_from_its_text(
        millis in TimestampMillis::MIN.0..=TimestampMillis::MAX.0
    ) {
        let instant = TimestampMillis(millis);
        for parser in [TimestampParser::auto(), TimestampParser::iso()] {
            prop_assert_eq!(parser.parse_str(&instant.to_string()), Ok(instant));
        }
    }
}
