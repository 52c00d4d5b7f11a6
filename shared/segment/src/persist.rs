//! Spills: a sorted run on local disk, complete or not there.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringBuilder};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use sha2::{Digest as _, Sha256};

use crate::SegmentError;
use crate::column::Column;
use crate::index::MemRun;
use crate::run_schema::{Found, RunSchema};
use crate::typed::Kinds;

/// Rows of one batch in a run's file: what a merge holds of each run at a time.
pub(crate) const BATCH_ROWS: usize = 4_096;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    pub rows: u64,
    pub size_bytes: u64,
    /// SHA-256 of the file, lower-case hex.
    pub sha256: String,
}

/// Counts and hashes what goes through.
pub(crate) struct Hashing<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }
    pub(crate) fn finish(self) -> (W, u64, String) {
        (self.inner, self.bytes, hex::encode(self.hash.finalize()))
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// Sorts the rows and writes them to `path`. A crash leaves no file of that name, or the whole one.
pub fn persist(run: &MemRun, path: &Path) -> Result<RunInfo, SegmentError> {
    let order = sorted(run);
    let (schema, positions) = schema_of(run);
    let mut writer = RunWriter::create(path, &schema)?;
    for rows in order.chunks(BATCH_ROWS) {
        writer.write(&batch(run, &schema, &positions, rows)?)?;
    }
    writer.finish()
}

/// Row numbers in the order of the run: time, dimensions, partition, offset.
fn sorted(run: &MemRun) -> Vec<u32> {
    let rows = &run.rows;
    let dimensions = run.layout.dimensions().count();
    let orders: Vec<_> = rows.columns[..dimensions]
        .iter()
        .chain(rows.names.values().map(|place| &rows.discovered[*place]))
        .map(Column::order)
        .collect();
    let mut order: Vec<(i64, u32)> = rows.times.iter().copied().zip(0..).collect();
    // Time mostly decides; what is left are short stretches of equal time (long ones with a query granularity).
    order.sort_unstable();
    for same_time in order.chunk_by_mut(|(a, _), (b, _)| a == b) {
        same_time.sort_unstable_by(|(_, a), (_, b)| {
            let (a, b) = (*a as usize, *b as usize);
            orders
                .iter()
                .map(|order| order.compare(a, b))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| {
                    (rows.partitions[a], rows.offsets[a]).cmp(&(rows.partitions[b], rows.offsets[b]))
                })
        });
    }
    order.into_iter().map(|(_, row)| row).collect()
}

/// The schema, and for each of its columns between time and partition where the values are.
fn schema_of(run: &MemRun) -> (RunSchema, Vec<Source>) {
    let rows = &run.rows;
    let mut found = Found::new();
    for (name, place) in &rows.names {
        let mut kinds = Kinds::default();
        if let Column::Text { values, .. } = &rows.discovered[*place]
            && run.layout.typed_discovery
        {
            (1..=values.len() as u32)
                .filter_map(|code| values.value(code))
                .for_each(|marked| kinds.add(marked));
        } else {
            kinds.other = true;
        }
        found.insert(name.clone(), kinds);
    }
    let dimensions = run.layout.dimensions().count();
    let positions = (0..dimensions)
        .map(Source::Declared)
        .chain(rows.names.values().map(|place| Source::Discovered(*place)))
        .chain((dimensions..rows.columns.len()).map(Source::Declared))
        .collect();
    (RunSchema::new(run.layout.clone(), found), positions)
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Declared(usize),
    Discovered(usize),
}

fn batch(
    run: &MemRun,
    schema: &RunSchema,
    sources: &[Source],
    order: &[u32],
) -> Result<RecordBatch, SegmentError> {
    let rows = &run.rows;
    let pick = |values: &[i64]| {
        Arc::new(Int64Array::from_iter_values(
            order.iter().map(|row| values[*row as usize]),
        ))
    };
    let mut arrays: Vec<ArrayRef> = vec![pick(&rows.times)];
    for source in sources {
        arrays.push(match source {
            Source::Declared(place) => array(&rows.columns[*place], order),
            Source::Discovered(place) => array(&rows.discovered[*place], order),
        });
    }
    arrays.push(Arc::new(Int32Array::from_iter_values(
        order.iter().map(|row| rows.partitions[*row as usize]),
    )));
    arrays.push(pick(&rows.offsets));
    Ok(RecordBatch::try_new(Arc::clone(&schema.arrow), arrays)?)
}

fn array(column: &Column, order: &[u32]) -> ArrayRef {
    let rows = order.iter().map(|row| *row as usize);
    match column {
        Column::Text { codes, values } => {
            let bytes = rows.clone().map(|row| values.length(codes[row])).sum();
            let mut builder = StringBuilder::with_capacity(order.len(), bytes);
            rows.for_each(|row| builder.append_option(values.value(codes[row])));
            Arc::new(builder.finish())
        }
        Column::Long { values, valid } => Arc::new(
            rows.map(|row| valid[row].then_some(values[row]))
                .collect::<Int64Array>(),
        ),
        Column::Double { values, valid } => Arc::new(
            rows.map(|row| valid[row].then_some(values[row]))
                .collect::<Float64Array>(),
        ),
    }
}

/// Writes a run batch by batch; the file has its name only when it is complete and on disk.
pub(crate) struct RunWriter {
    writer: StreamWriter<Hashing<BufWriter<File>>>,
    path: std::path::PathBuf,
    partial: std::path::PathBuf,
    rows: u64,
}

impl RunWriter {
    pub(crate) fn create(path: &Path, schema: &RunSchema) -> Result<Self, SegmentError> {
        let partial = path.with_extension("partial");
        let file = File::create(&partial).map_err(SegmentError::io("create", &partial))?;
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::LZ4_FRAME))
            .map_err(SegmentError::arrow("write", path))?;
        let output = Hashing::new(BufWriter::with_capacity(1 << 18, file));
        let writer = StreamWriter::try_new_with_options(output, &schema.arrow, options)
            .map_err(SegmentError::arrow("write", path))?;
        Ok(Self {
            writer,
            path: path.to_owned(),
            partial,
            rows: 0,
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), SegmentError> {
        self.rows += batch.num_rows() as u64;
        self.writer
            .write(batch)
            .map_err(SegmentError::arrow("write", &self.path))
    }

    pub(crate) fn finish(self) -> Result<RunInfo, SegmentError> {
        let output = self
            .writer
            .into_inner()
            .map_err(SegmentError::arrow("write", &self.path))?;
        let (output, size_bytes, sha256) = output.finish();
        put_in_place(output, &self.partial, &self.path)?;
        Ok(RunInfo {
            rows: self.rows,
            size_bytes,
            sha256,
        })
    }
}

/// To disk, then to its name, then the name to disk.
pub(crate) fn put_in_place(output: BufWriter<File>, partial: &Path, path: &Path) -> Result<(), SegmentError> {
    let file = output
        .into_inner()
        .map_err(|error| SegmentError::io("write", path)(error.into_error()))?;
    file.sync_all().map_err(SegmentError::io("sync", path))?;
    fs::rename(partial, path).map_err(SegmentError::io("rename", path))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(SegmentError::io("sync the folder of", path))
}

/// Reads the file and compares its checksum: any changed byte is an error (B56).
pub fn verify(path: &Path, sha256: &str) -> Result<(), SegmentError> {
    let mut file = File::open(path).map_err(SegmentError::io("open", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).map_err(SegmentError::io("read", path))? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    let found = hex::encode(hash.finalize());
    if found == sha256 {
        return Ok(());
    }
    Err(SegmentError::Damaged {
        path: path.to_owned(),
        expected: sha256.to_owned(),
        found,
    })
}
