//! The totals: what the generator made, against what stands in the Parquet files of the catalog.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Serialize;
use tidegate_rpc::coordinator::v1::{SegmentInfo, StatusResponse};
use tidegate_types::TimestampMillis;

use crate::cli::Output;
use crate::failure::Failure;
use crate::generator::Totals;
use crate::report::{Show, grouped, table};
use crate::views::CountsView;

const HOUR_MILLIS: i64 = 3_600_000;

/// What the files hold.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    rows: u64,
    added: i64,
    deleted: i64,
    delta: i64,
    non_ascii_comments: u64,
    rows_per_hour: BTreeMap<TimestampMillis, u64>,
}

/// The outcome of a run. Field names are those of `--output json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    rows_produced: u64,
    rows_in_segments: u64,
    rejected: u64,
    unparseable: u64,
    tombstones: u64,
    segments: u64,
    bytes: u64,
    seconds: f64,
    rows_per_second: f64,
    ok: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<String>,
}

/// Reads every segment of the catalog and compares.
pub(super) async fn compare(
    made: &Totals,
    status: &StatusResponse,
    segments: Vec<SegmentInfo>,
    objects: &Path,
    took: Duration,
) -> Result<Report, Failure> {
    let files: Vec<(PathBuf, u64)> = segments
        .iter()
        .filter(|info| info.used)
        .filter_map(|info| info.segment.as_ref())
        .map(|segment| (objects.join(&segment.key), segment.rows))
        .collect();
    let bytes = segments
        .iter()
        .filter_map(|info| info.segment.as_ref())
        .map(|segment| segment.size_bytes)
        .sum();
    let count = files.len() as u64;
    let found = tokio::task::spawn_blocking(move || read_all(&files))
        .await
        .map_err(|error| Failure::Other(format!("reading the segments: {error}")))??;
    let counts = CountsView::from(status.counts);
    let seconds = took.as_secs_f64();
    let differences = differences(made, &found, &counts);
    Ok(Report {
        rows_produced: made.records,
        rows_in_segments: found.rows,
        rejected: counts.rejected,
        unparseable: counts.unparseable,
        tombstones: counts.tombstones,
        segments: count,
        bytes,
        seconds: (seconds * 1000.0).round() / 1000.0,
        rows_per_second: (made.records as f64 / seconds.max(0.001)).round(),
        ok: differences.is_empty(),
        differences,
    })
}

fn differences(made: &Totals, found: &Found, counts: &CountsView) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, wanted: i128, got: i128| {
        if wanted != got {
            differences.push(format!("{what}: generated {wanted}, found {got}"));
        }
    };
    compare("rows in segments", made.rows.into(), found.rows.into());
    compare("sum(added)", made.added.into(), found.added.into());
    compare("sum(deleted)", made.deleted.into(), found.deleted.into());
    compare("sum(delta)", made.delta.into(), found.delta.into());
    compare(
        "comments with non-ASCII text",
        made.non_ascii_comments.into(),
        found.non_ascii_comments.into(),
    );
    let hours = made.rows_per_hour.keys().chain(found.rows_per_hour.keys());
    for hour in hours.collect::<std::collections::BTreeSet<_>>() {
        let of = |rows: &BTreeMap<TimestampMillis, u64>| rows.get(hour).copied().unwrap_or(0).into();
        compare(
            &format!("rows of the hour {hour}"),
            of(&made.rows_per_hour),
            of(&found.rows_per_hour),
        );
    }
    compare("accepted rows", made.rows.into(), counts.accepted.into());
    compare(
        "unparseable records",
        made.unparseable.into(),
        counts.unparseable.into(),
    );
    compare("tombstones", made.tombstones.into(), counts.tombstones.into());
    compare("rejected rows", 0, counts.rejected.into());
    compare("records read", made.records.into(), counts.records().into());
    differences
}

fn read_all(files: &[(PathBuf, u64)]) -> Result<Found, Failure> {
    let mut found = Found::default();
    for (path, rows) in files {
        let before = found.rows;
        read_one(path, &mut found)
            .map_err(|why| Failure::Other(format!("segment {} cannot be read: {why}", path.display())))?;
        let got = found.rows - before;
        if got != *rows {
            let what = format!(
                "segment {} has {got} rows, the catalog says {rows}",
                path.display()
            );
            return Err(Failure::Other(what));
        }
    }
    Ok(found)
}

fn read_one(path: &Path, found: &mut Found) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| error.to_string())?;
    for batch in reader {
        add(&batch.map_err(|error| error.to_string())?, found)?;
    }
    Ok(())
}

fn add(batch: &RecordBatch, found: &mut Found) -> Result<(), String> {
    let column = |name: &str, kind: &DataType| {
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| format!("it has no column {name}"))?;
        cast(column, kind).map_err(|error| format!("column {name}: {error}"))
    };
    found.rows += batch.num_rows() as u64;
    let sum = |name: &str| {
        let column = column(name, &DataType::Int64)?;
        Ok::<i64, String>(column.as_primitive::<Int64Type>().iter().flatten().sum())
    };
    found.added += sum("added")?;
    found.deleted += sum("deleted")?;
    found.delta += sum("delta")?;
    let times = column("__time", &DataType::Int64)?;
    for time in times.as_primitive::<Int64Type>().iter().flatten() {
        let hour = TimestampMillis(time - time.rem_euclid(HOUR_MILLIS));
        *found.rows_per_hour.entry(hour).or_default() += 1;
    }
    let comments = column("comment", &DataType::Utf8)?;
    let comments = comments.as_string::<i32>();
    let non_ascii =
        (0..comments.len()).filter(|row| comments.is_valid(*row) && !comments.value(*row).is_ascii());
    found.non_ascii_comments += non_ascii.count() as u64;
    Ok(())
}

impl Report {
    pub(super) fn ok(&self) -> bool {
        self.ok
    }

    /// One line for a person.
    pub(super) fn differences(&self) -> String {
        format!("the totals differ: {}", self.differences.join("; "))
    }

    pub(super) fn print(&self, output: Output, objects: &Path, data_source: &str) -> Result<(), Failure> {
        crate::report::print(output, self)?;
        if output == Output::Table {
            let files = objects.join("segments").join(data_source);
            println!("Parquet files: {}", files.display());
            println!(
                "open them:     duckdb -c \"SELECT channel, count(*), sum(added) FROM '{}/**/*.parquet' GROUP BY ALL\"",
                files.display()
            );
            println!(
                "           or: python -c \"import polars; print(polars.read_parquet('{}/**/*.parquet'))\"",
                files.display()
            );
        }
        Ok(())
    }
}

impl Show for Report {
    fn show(&self) -> String {
        let row = vec![
            grouped(self.rows_produced),
            grouped(self.rejected),
            grouped(self.unparseable),
            grouped(self.tombstones),
            grouped(self.rows_in_segments),
            grouped(self.segments),
            grouped(self.bytes),
            format!("{:.1}", self.seconds),
            grouped(self.rows_per_second as u64),
        ];
        let heading = [
            "rows read",
            "rejected",
            "unparseable",
            "tombstones",
            "in segments",
            "segments",
            "bytes",
            "seconds",
            "rows/s",
        ];
        let verdict = if self.ok {
            "all totals agree with the generator"
        } else {
            "the totals DIFFER"
        };
        format!("{}\n{verdict}", table(&heading, vec![row], ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> (Totals, Found, CountsView) {
        let rows_per_hour = BTreeMap::from([(TimestampMillis(0), 8)]);
        let made = Totals {
            records: 10,
            rows: 8,
            tombstones: 1,
            unparseable: 1,
            added: 5,
            rows_per_hour: rows_per_hour.clone(),
            ..Totals::default()
        };
        let found = Found {
            rows: 8,
            added: 5,
            rows_per_hour,
            ..Found::default()
        };
        let counts = CountsView {
            accepted: 8,
            tombstones: 1,
            unparseable: 1,
            ..CountsView::default()
        };
        (made, found, counts)
    }

    #[test]
    fn equal_totals_have_no_differences() {
        let (made, found, counts) = totals();
        assert!(differences(&made, &found, &counts).is_empty());
    }

    #[test]
    fn each_total_that_differs_is_named() {
        let (made, mut found, mut counts) = totals();
        found.added = 6;
        found.rows_per_hour = BTreeMap::from([(TimestampMillis(HOUR_MILLIS), 8)]);
        counts.tombstones = 0;
        let told = differences(&made, &found, &counts);
        assert_eq!(
            told,
            [
                "sum(added): generated 5, found 6",
                "rows of the hour 1970-01-01T00:00:00.000Z: generated 8, found 0",
                "rows of the hour 1970-01-01T01:00:00.000Z: generated 0, found 8",
                "tombstones: generated 1, found 0",
                "records read: generated 10, found 9",
            ]
        );
    }
}
