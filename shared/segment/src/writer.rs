//! The segment file: Parquet, sorted by time then dimensions.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tidegate_decode::ColumnKind;
use tidegate_spec::{DimensionKind, MetricKind};

use crate::merge::MergeSettings;
use crate::persist::{Hashing, put_in_place};
use crate::run_schema::RunSchema;
use crate::typed::{self, Widened};
use crate::{SegmentError, SegmentFile, SegmentMeta};

/// Writes one segment file; it has its name only when it is complete and on disk.
pub(crate) struct SegmentWriter {
    writer: ArrowWriter<Hashing<BufWriter<File>>>,
    schema: SchemaRef,
    /// For each column of the file: where it comes from and what it becomes.
    columns: Vec<(usize, Becomes)>,
    path: PathBuf,
    partial: PathBuf,
    meta: SegmentMeta,
    rows: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Time,
    Same,
    Float,
    Widened(Widened),
}

impl SegmentWriter {
    pub(crate) fn create(
        path: &Path,
        run: &RunSchema,
        meta: &SegmentMeta,
        settings: &MergeSettings,
    ) -> Result<Self, SegmentError> {
        let (schema, columns) = segment_schema(run);
        let schema = Arc::new(schema);
        let partial = path.with_extension("partial");
        let file = File::create(&partial).map_err(SegmentError::io("create", &partial))?;
        let output = Hashing::new(BufWriter::with_capacity(1 << 18, file));
        let properties =
            properties(&schema, run.dimensions(), settings).map_err(SegmentError::parquet("write", path))?;
        let writer = ArrowWriter::try_new(output, Arc::clone(&schema), Some(properties))
            .map_err(SegmentError::parquet("write", path))?;
        Ok(Self {
            writer,
            schema,
            columns,
            path: path.to_owned(),
            partial,
            meta: meta.clone(),
            rows: 0,
        })
    }

    /// A batch with the columns of the run's schema.
    pub(crate) fn write(&mut self, columns: &[ArrayRef]) -> Result<(), SegmentError> {
        let arrays: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|(from, becomes)| convert(&columns[*from], *becomes))
            .collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        self.rows += batch.num_rows() as u64;
        self.writer
            .write(&batch)
            .map_err(SegmentError::parquet("write", &self.path))
    }

    pub(crate) fn finish(mut self) -> Result<SegmentFile, SegmentError> {
        for pair in self.meta.key_values(self.rows) {
            self.writer.append_key_value_metadata(pair);
        }
        let output = self
            .writer
            .into_inner()
            .map_err(SegmentError::parquet("finish", &self.path))?;
        let (output, size_bytes, sha256) = output.finish();
        put_in_place(output, &self.partial, &self.path)?;
        Ok(SegmentFile {
            path: self.path,
            rows: self.rows,
            size_bytes,
            sha256,
        })
    }
}

fn segment_schema(run: &RunSchema) -> (Schema, Vec<(usize, Becomes)>) {
    let mut fields = vec![Field::new(
        "__time",
        DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        false,
    )];
    let mut columns = vec![(0, Becomes::Time)];
    let declared = |kind: ColumnKind| match kind {
        ColumnKind::Dimension(DimensionKind::Float)
        | ColumnKind::Metric(MetricKind::FloatSum | MetricKind::FloatMin | MetricKind::FloatMax) => {
            (DataType::Float32, Becomes::Float)
        }
        other => (crate::run_schema::data_type(other), Becomes::Same),
    };
    let mut at = 1;
    let mut add = |name: &str, (data_type, becomes): (DataType, Becomes)| {
        fields.push(Field::new(name, data_type, true));
        columns.push((at, becomes));
        at += 1;
    };
    for column in run.layout.dimensions() {
        add(&column.name, declared(column.kind));
    }
    for (name, kinds) in &run.found {
        add(
            name,
            match kinds.widened() {
                _ if !run.layout.typed_discovery => (DataType::Utf8, Becomes::Same),
                Widened::Long => (DataType::Int64, Becomes::Widened(Widened::Long)),
                Widened::Double => (DataType::Float64, Becomes::Widened(Widened::Double)),
                Widened::Text => (DataType::Utf8, Becomes::Widened(Widened::Text)),
            },
        );
    }
    for column in run
        .layout
        .columns
        .iter()
        .filter(|column| matches!(column.kind, ColumnKind::Metric(_)))
    {
        add(&column.name, declared(column.kind));
    }
    (Schema::new(fields), columns)
}

fn convert(column: &ArrayRef, becomes: Becomes) -> ArrayRef {
    match becomes {
        Becomes::Same => Arc::clone(column),
        Becomes::Time => {
            let times = column.as_primitive::<Int64Type>();
            Arc::new(TimestampMillisecondArray::new(times.values().clone(), None).with_timezone("UTC"))
        }
        Becomes::Float => {
            let values = column.as_primitive::<Float64Type>();
            Arc::new(
                values
                    .iter()
                    .map(|value| value.map(|value| value as f32))
                    .collect::<Float32Array>(),
            )
        }
        Becomes::Widened(to) => {
            let marked = column
                .as_string::<i32>()
                .iter()
                .map(|value| value.map(typed::text));
            match to {
                Widened::Text => Arc::new(marked.collect::<StringArray>()),
                // Only longs were met, so every text is one.
                Widened::Long => Arc::new(marked.map(|text| text?.parse().ok()).collect::<Int64Array>()),
                Widened::Double => Arc::new(marked.map(|text| text?.parse().ok()).collect::<Float64Array>()),
            }
        }
    }
}

fn properties(
    schema: &Schema,
    dimensions: usize,
    settings: &MergeSettings,
) -> Result<WriterProperties, parquet::errors::ParquetError> {
    let sorting = (0..=dimensions as i32)
        .map(|column_idx| SortingColumn {
            column_idx,
            descending: false,
            nulls_first: true,
        })
        .collect();
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(settings.zstd_level)?))
        .set_max_row_group_row_count(Some(settings.row_group_rows.max(1)))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_sorting_columns(Some(sorting))
        .set_created_by(crate::WRITER_VERSION.to_owned());
    for name in settings
        .bloom_filter
        .iter()
        .filter(|name| schema.column_with_name(name).is_some())
    {
        builder = builder.set_column_bloom_filter_enabled(ColumnPath::from(vec![name.clone()]), true);
    }
    Ok(builder.build())
}
