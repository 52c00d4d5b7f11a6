//! Rows in, Parquet out: values are compared with what a plain reading of the same rows gives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampMillisecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::FileReader as _;
use tidegate_decode::{Decoder, Outcome, TimeBounds};
use tidegate_segment::{
    Index, MergeSettings, SegmentError, SegmentFile, SegmentMeta, merge, persist, verify,
};
use tidegate_spec::*;
use tidegate_types::*;

fn schema(dimensions: &[(&str, DimensionKind)], metrics: &[(&str, MetricKind)], rollup: bool) -> DataSchema {
    DataSchema {
        data_source: DataSource::new("Łódź events").unwrap(),
        timestamp: TimestampSpec {
            column: "time".into(),
            format: TimestampFormat::Auto,
            missing_value: None,
        },
        dimensions: DimensionsSpec {
            dimensions: dimensions
                .iter()
                .map(|(name, kind)| DimensionSpec {
                    name: (*name).into(),
                    kind: *kind,
                    multi_value: MultiValueHandling::SortedArray,
                })
                .collect(),
            discover: dimensions.is_empty(),
            typed_discovery: false,
            exclusions: Vec::new(),
        },
        metrics: metrics
            .iter()
            .map(|(name, kind)| MetricSpec {
                name: (*name).into(),
                kind: *kind,
                field: (*name).into(),
            })
            .collect(),
        granularity: GranularitySpec {
            segment: Granularity::Day,
            query: Granularity::None,
            rollup,
        },
    }
}

fn meta() -> SegmentMeta {
    let day = Granularity::Day.bucket(TimestampMillis(0)).unwrap();
    SegmentMeta {
        id: SegmentId {
            data_source: DataSource::new("Łódź events").unwrap(),
            interval: day,
            version: SegmentVersion::new("2024-05-01T00:00:00.000Z").unwrap(),
            partition_num: 3,
        },
        sequence: SequenceName::new("index_kafka_x_0").unwrap(),
        first_offsets: PartitionOffsets::from([(0, 0)]),
        end_offsets: PartitionOffsets::from([(0, 100)]),
        input_rows: 100,
    }
}

fn settings(fan_in: usize) -> MergeSettings {
    MergeSettings {
        fan_in,
        zstd_level: 1,
        row_group_rows: 1_000,
        bloom_filter: vec!["user".into(), "absent".into()],
    }
}

/// Appends the records and spills after every `spill` of them.
fn runs(schema: &DataSchema, records: &[String], spill: usize, folder: &Path) -> Vec<PathBuf> {
    let mut decoder = Decoder::new(
        schema,
        &InputFormat::Json(JsonFormat::default()),
        TimeBounds::default(),
        1_000_000,
    )
    .unwrap();
    let mut index = Index::new(decoder.layout().clone());
    let mut paths = Vec::new();
    let mut flush = |index: &mut Index| {
        if !index.is_empty() {
            let path = folder.join(format!("run-{}", paths.len()));
            let run = index.take();
            assert!(index.is_empty());
            let info = persist(&run, &path).unwrap();
            assert_eq!(info.size_bytes, std::fs::metadata(&path).unwrap().len());
            verify(&path, &info.sha256).unwrap();
            paths.push(path);
        }
    };
    for (offset, record) in records.iter().enumerate() {
        let mut bytes = record.clone().into_bytes();
        let outcome = decoder.decode(Some(&mut bytes), |row| {
            index.append(PartitionId(0), Offset(offset as i64), &row);
        });
        assert_eq!(outcome, Outcome::Accepted, "{record}");
        if (offset + 1) % spill == 0 {
            flush(&mut index);
        }
    }
    flush(&mut index);
    paths
}

fn segment(
    schema: &DataSchema,
    records: &[String],
    spill: usize,
    fan_in: usize,
) -> (Vec<RecordBatch>, SegmentFile) {
    let folder = tempfile::tempdir().unwrap();
    let paths = runs(schema, records, spill, folder.path());
    let layout = tidegate_decode::Layout::of(schema);
    let out = folder.path().join("segment.parquet");
    let file = merge(&paths, &layout, &meta(), &settings(fan_in), &out).unwrap();
    assert_eq!(file.size_bytes, std::fs::metadata(&out).unwrap().len());
    verify(&out, &file.sha256).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&out).unwrap())
        .unwrap()
        .build()
        .unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>() as u64,
        file.rows
    );
    // Only the runs and the segment are left: no partial file, no intermediate run.
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, paths.len() + 1);
    (batches, file)
}

/// Every row as text, in the order of the file.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = batch
                .columns()
                .iter()
                .map(|column| cell(column.as_ref(), row))
                .collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

fn cell(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "∅".into();
    }
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => format!("{:?}", column.as_primitive::<Float64Type>().value(row)),
        DataType::Float32 => format!(
            "{:?}",
            column.as_primitive::<arrow::datatypes::Float32Type>().value(row)
        ),
        DataType::Timestamp(..) => column
            .as_primitive::<TimestampMillisecondType>()
            .value(row)
            .to_string(),
        other => panic!("{other}"),
    }
}

fn edits(count: usize) -> Vec<String> {
    (0..count)
        .map(|n| {
            let time = (n * 7_919) % 50;
            let user = ["ann", "Żółw", "bob", "東京"][(n * 31) % 4];
            let page = if n % 5 == 0 {
                "null".to_owned()
            } else {
                format!("\"p{}\"", n % 3)
            };
            format!(
                r#"{{"time":{time},"user":"{user}","page":{page},"added":{},"price":{}.1}}"#,
                n % 11,
                n % 13
            )
        })
        .collect()
}

#[test]
fn rows_are_sorted_by_time_then_dimensions_then_offset_whatever_the_spills() {
    let schema = schema(
        &[("user", DimensionKind::String), ("page", DimensionKind::String)],
        &[("added", MetricKind::LongSum)],
        false,
    );
    let records = edits(1_000);
    let mut expected: Vec<(i64, String, Option<String>, usize, i64)> = records
        .iter()
        .enumerate()
        .map(|(offset, record)| {
            let value: serde_json::Value = serde_json::from_str(record).unwrap();
            let text = |name: &str| value[name].as_str().map(str::to_owned);
            (
                value["time"].as_i64().unwrap(),
                text("user").unwrap(),
                text("page"),
                offset,
                value["added"].as_i64().unwrap(),
            )
        })
        .collect();
    expected.sort();
    let expected: Vec<String> = expected
        .into_iter()
        .map(|(time, user, page, _, added)| format!("{time}|{user}|{}|{added}", page.unwrap_or("∅".into())))
        .collect();
    for (spill, fan_in) in [(10_000, 16), (100, 16), (37, 4), (9, 2)] {
        let (batches, _) = segment(&schema, &records, spill, fan_in);
        assert_eq!(rows(&batches), expected, "spill {spill}, fan-in {fan_in}");
    }
}

#[test]
fn roll_up_gives_the_same_rows_whatever_the_spills_float_sums_included() {
    let schema = schema(
        &[("user", DimensionKind::String)],
        &[
            ("count", MetricKind::Count),
            ("added", MetricKind::LongSum),
            ("price", MetricKind::DoubleSum),
        ],
        true,
    );
    let records = edits(5_000);
    // The oracle: a map, and float sums in the order of offsets.
    let mut cells: BTreeMap<(i64, String), (i64, i64, f64)> = BTreeMap::new();
    for record in &records {
        let value: serde_json::Value = serde_json::from_str(record).unwrap();
        let key = (
            value["time"].as_i64().unwrap(),
            value["user"].as_str().unwrap().to_owned(),
        );
        let cell = cells.entry(key).or_insert((0, 0, -0.0));
        cell.0 += 1;
        cell.1 += value["added"].as_i64().unwrap();
        cell.2 += value["price"].as_f64().unwrap();
    }
    let expected: Vec<String> = cells
        .into_iter()
        .map(|((time, user), (count, added, price))| format!("{time}|{user}|{count}|{added}|{price:?}"))
        .collect();
    for (spill, fan_in) in [(10_000, 16), (500, 16), (77, 3), (13, 2)] {
        let (batches, file) = segment(&schema, &records, spill, fan_in);
        assert_eq!(rows(&batches), expected, "spill {spill}, fan-in {fan_in}");
        assert_eq!(file.rows, expected.len() as u64);
    }
}

/// More cells than one chunk of the merge holds: the row under way crosses chunks.
#[test]
fn roll_up_over_many_chunks_counts_every_row_once() {
    let schema = schema(
        &[("user", DimensionKind::String)],
        &[("count", MetricKind::Count)],
        true,
    );
    let records: Vec<String> = (0..30_000)
        .map(|n: usize| format!(r#"{{"time":{},"user":"u{}"}}"#, n / 2, n / 2 % 3))
        .collect();
    let (batches, file) = segment(&schema, &records, 4_001, 3);
    assert_eq!(file.rows, 15_000);
    for (n, row) in rows(&batches).iter().enumerate() {
        assert_eq!(*row, format!("{n}|u{}|2", n % 3));
    }
}

/// Few cells of many rows: they cross chunks, and batches are let go of while a cell is under way. Dimensions of
/// every type decide the order, with null first and -0.0 before 0.0.
#[test]
fn roll_up_of_many_rows_to_few_cells_is_the_same_whatever_the_spills() {
    let schema = schema(
        &[
            ("d", DimensionKind::Double),
            ("l", DimensionKind::Long),
            ("s", DimensionKind::String),
        ],
        &[("count", MetricKind::Count), ("sum", MetricKind::DoubleSum)],
        true,
    );
    let doubles = ["null", "-1.5", "-0.0", "0.0", "2.5"];
    let longs = ["null", "-7", "7"];
    let texts = ["null", "\"\"", "\"a\"", "\"Ł\""];
    // Places in the lists above are places in the order.
    let cells = doubles.len() * longs.len() * texts.len();
    let records: Vec<String> = (0..240_000)
        .map(|n: usize| {
            let cell = n * 7 % cells;
            format!(
                r#"{{"time":0,"d":{},"l":{},"s":{},"sum":0.1}}"#,
                doubles[cell / 12],
                longs[cell / 4 % 3],
                texts[cell % 4]
            )
        })
        .collect();
    let sum = (1..4_000).fold(0.1, |sum, _| sum + 0.1);
    let shown = |written: &str| {
        if written == "null" {
            "∅".to_owned()
        } else {
            written.trim_matches('"').to_owned()
        }
    };
    let expected: Vec<String> = (0..cells)
        .map(|cell| {
            let (d, l, s) = (doubles[cell / 12], longs[cell / 4 % 3], texts[cell % 4]);
            format!("0|{}|{}|{}|4000|{sum:?}", shown(d), shown(l), shown(s))
        })
        .collect();
    for (spill, fan_in) in [(1_000_000, 16), (50_000, 16), (30_000, 3)] {
        let (batches, _) = segment(&schema, &records, spill, fan_in);
        assert_eq!(rows(&batches), expected, "spill {spill}, fan-in {fan_in}");
    }
}

#[test]
fn b06_what_was_accepted_can_be_sealed_and_reads_back_equal() {
    let schema = schema(
        &[
            ("s", DimensionKind::String),
            ("l", DimensionKind::Long),
            ("d", DimensionKind::Double),
            ("f", DimensionKind::Float),
            ("j", DimensionKind::Json),
        ],
        &[
            ("sum", MetricKind::DoubleSum),
            ("max", MetricKind::LongMax),
            ("fmin", MetricKind::FloatMin),
        ],
        true,
    );
    let nested = format!("{}{}", "[".repeat(900), "]".repeat(900));
    let long = "x".repeat(100_000);
    let records: Vec<String> = vec![
        format!(r#"{{"time":1,"s":"{long}","l":9223372036854775807,"d":1e308,"j":{nested},"sum":1e308,"max":-9223372036854775808,"fmin":1e300}}"#),
        format!(r#"{{"time":1,"s":"{long}","l":9223372036854775807,"d":1e308,"j":{nested},"sum":1e308,"max":9223372036854775807,"fmin":3}}"#),
        r#"{"time":2,"s":"","l":-9223372036854775808,"d":-0.0,"j":"\u0000","sum":"NaN","max":0,"fmin":"NaN"}"#.into(),
        r#"{"time":2,"s":"a\u0000b","l":0,"d":0.0,"f":0.1,"j":[],"sum":-0.0}"#.into(),
        r#"{"time":2,"s":null}"#.into(),
    ];
    let (batches, _) = segment(&schema, &records, 2, 2);
    let expected = [
        format!("1|{long}|9223372036854775807|1e308|∅|{nested}|inf|9223372036854775807|3.0"),
        "2|∅|∅|∅|∅|∅|∅|∅|∅".into(),
        "2||-9223372036854775808|-0.0|∅|\"\\u0000\"|NaN|0|NaN".into(),
        "2|a\u{0}b|0|0.0|0.1|[]|-0.0|∅|∅".into(),
    ];
    assert_eq!(rows(&batches), expected);
}

#[test]
fn discovered_columns_come_by_name_and_rows_without_them_are_null() {
    let schema = schema(&[], &[], false);
    let records: Vec<String> = vec![
        r#"{"time":1,"b":"x"}"#.into(),
        r#"{"time":2,"a":5,"b":null}"#.into(),
        r#"{"time":3,"c":{"not":"a dimension"},"a":["q","p"]}"#.into(),
    ];
    for spill in [1, 2, 10] {
        let (batches, _) = segment(&schema, &records, spill, 2);
        let names: Vec<_> = batches[0]
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        assert_eq!(names, ["__time", "a", "b"]);
        assert_eq!(
            rows(&batches),
            ["1|∅|x", "2|5|∅", "3|[\"p\",\"q\"]|∅"],
            "spill {spill}"
        );
    }
}

#[test]
fn b12_a_typed_column_widens_the_same_way_in_every_order_and_at_every_spill() {
    let mut schema = schema(&[], &[], false);
    schema.dimensions.typed_discovery = true;
    let values = ["7", "1.5", "\"text\"", "[1,2]", "{\"k\":1}", "9007199254740993"];
    let permutations: Vec<Vec<usize>> = (0..values.len())
        .map(|shift| {
            (0..values.len())
                .map(|n| (n * 5 + shift) % values.len())
                .collect()
        })
        .collect();
    for upto in 1..=values.len() {
        let mut seen = Vec::new();
        for order in &permutations {
            for spill in [1, 2, 100] {
                // Time tells the value, so that rows end in the same order.
                let records: Vec<String> = order
                    .iter()
                    .filter(|n| **n < upto)
                    .map(|n| format!(r#"{{"time":{n},"v":{}}}"#, values[*n]))
                    .collect();
                let (batches, _) = segment(&schema, &records, spill, 2);
                seen.push((batches[0].schema().field(1).data_type().clone(), rows(&batches)));
            }
        }
        let expected = match upto {
            1 => DataType::Int64,
            2 => DataType::Float64,
            _ => DataType::Utf8,
        };
        assert!(seen.iter().all(|one| *one == seen[0]), "upto {upto}: {seen:?}");
        assert_eq!(seen[0].0, expected);
    }
    let all: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(n, value)| format!(r#"{{"time":{n},"v":{value}}}"#))
        .collect();
    let (batches, _) = segment(&schema, &all, 2, 2);
    assert_eq!(
        rows(&batches),
        [
            "0|7",
            "1|1.5",
            "2|text",
            "3|[1,2]",
            "4|{\"k\":1}",
            "5|9007199254740993"
        ]
    );
}

#[test]
fn the_file_says_what_it_is_and_has_statistics_and_the_wanted_bloom_filter() {
    let folder = tempfile::tempdir().unwrap();
    let schema = schema(&[("user", DimensionKind::String)], &[], false);
    let paths = runs(&schema, &edits(2_500), 700, folder.path());
    let out = folder.path().join("segment.parquet");
    merge(
        &paths,
        &tidegate_decode::Layout::of(&schema),
        &meta(),
        &settings(16),
        &out,
    )
    .unwrap();
    let reader =
        parquet::file::reader::SerializedFileReader::new(std::fs::File::open(&out).unwrap()).unwrap();
    let file = reader.metadata();
    let said: BTreeMap<&str, &str> = file
        .file_metadata()
        .key_value_metadata()
        .unwrap()
        .iter()
        .filter_map(|pair| Some((pair.key.as_str(), pair.value.as_deref()?)))
        .collect();
    for (key, value) in [
        ("tidegate.data_source", "Łódź events"),
        (
            "tidegate.interval",
            "1970-01-01T00:00:00.000Z/1970-01-02T00:00:00.000Z",
        ),
        ("tidegate.version", "2024-05-01T00:00:00.000Z"),
        ("tidegate.partition_num", "3"),
        ("tidegate.sequence", "index_kafka_x_0"),
        ("tidegate.first_offsets", "{0: 0}"),
        ("tidegate.end_offsets", "{0: 100}"),
        ("tidegate.rows", "2500"),
        ("tidegate.input_rows", "100"),
    ] {
        assert_eq!(said.get(key), Some(&value), "{key}");
    }
    assert_eq!(file.num_row_groups(), 3, "2,500 rows in groups of 1,000");
    let group = file.row_group(0);
    assert!(group.column(0).statistics().is_some());
    assert!(group.column(1).bloom_filter_offset().is_some());
    assert!(group.column(0).bloom_filter_offset().is_none());
    assert!(group.sorting_columns().is_some());
}

#[test]
fn b56_any_changed_byte_of_a_run_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let schema = schema(&[("user", DimensionKind::String)], &[], false);
    let mut decoder = Decoder::new(
        &schema,
        &InputFormat::Json(JsonFormat::default()),
        TimeBounds::default(),
        1_000,
    )
    .unwrap();
    let mut index = Index::new(decoder.layout().clone());
    decoder.decode(Some(&mut edits(1)[0].clone().into_bytes()), |row| {
        index.append(PartitionId(0), Offset(0), &row);
    });
    let path = folder.path().join("run");
    let info = persist(&index.take(), &path).unwrap();
    let good = std::fs::read(&path).unwrap();
    for place in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        assert!(
            matches!(verify(&path, &info.sha256), Err(SegmentError::Damaged { .. })),
            "byte {place}"
        );
    }
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(verify(&path, &info.sha256).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(
        verify(&path, &info.sha256),
        Err(SegmentError::Io { .. })
    ));
}

/// The estimate that bounds memory is near what the rows really take.
#[test]
fn b69_accounted_bytes_are_within_a_quarter_of_the_data() {
    let schema = schema(
        &[("user", DimensionKind::String), ("n", DimensionKind::Long)],
        &[],
        false,
    );
    let mut decoder = Decoder::new(
        &schema,
        &InputFormat::Json(JsonFormat::default()),
        TimeBounds::default(),
        1_000,
    )
    .unwrap();
    let mut index = Index::new(decoder.layout().clone());
    let rows = 1 << 15;
    for n in 0..rows {
        let mut bytes = format!(r#"{{"time":{n},"user":"user number {n:020}","n":{n}}}"#).into_bytes();
        decoder.decode(Some(&mut bytes), |row| {
            index.append(PartitionId(0), Offset(n), &row);
        });
    }
    // Time, offset, number: 8 each; partition and code: 4 each; a flag; a text of 32 bytes with its end and table entry.
    let least = rows as usize * (8 + 8 + 8 + 4 + 4 + 1 + 32 + 8);
    let accounted = index.bytes();
    assert!(
        accounted >= least && accounted <= least * 5 / 4 + least / 4,
        "{accounted} for {least}"
    );
}
