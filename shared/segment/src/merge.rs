//! Merge: sorted runs to one segment, with a bounded number of runs at a time, in as many passes as that takes.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use tidegate_decode::Layout;
use tidegate_spec::SegmentWriterSpec;

use crate::merging::Merging;
use crate::persist::RunWriter;
use crate::plain::Plain;
use crate::roll_up::RollUp;
use crate::run_schema::RunSchema;
use crate::writer::SegmentWriter;
use crate::{SegmentError, SegmentFile, SegmentMeta};

/// How a segment is merged and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeSettings {
    /// Runs that are open at the same time.
    pub fan_in: usize,
    pub zstd_level: i32,
    pub row_group_rows: usize,
    /// Columns with a bloom filter.
    pub bloom_filter: Vec<String>,
}

impl MergeSettings {
    pub fn new(writer: &SegmentWriterSpec, fan_in: u32) -> Self {
        Self {
            fan_in: fan_in as usize,
            zstd_level: writer.zstd_level,
            row_group_rows: usize::try_from(writer.row_group_rows).unwrap_or(usize::MAX),
            bloom_filter: writer.bloom_filter.clone(),
        }
    }
}

/// Merges the runs of one segment into the Parquet file `out`. Intermediate runs lie beside it and are removed. The
/// runs themselves are left.
pub fn merge(
    runs: &[PathBuf],
    layout: &Layout,
    meta: &SegmentMeta,
    settings: &MergeSettings,
    out: &Path,
) -> Result<SegmentFile, SegmentError> {
    let fan_in = settings.fan_in.max(2);
    let mut waiting: VecDeque<(PathBuf, Kept)> = runs.iter().map(|run| (run.clone(), Kept::Yes)).collect();
    let mut pass = 0;
    while waiting.len() > fan_in {
        // Only as many as needed, so that the last pass is full.
        let count = fan_in.min(waiting.len() - fan_in + 1);
        let group: Vec<(PathBuf, Kept)> = waiting.drain(..count).collect();
        let path = out.with_extension(format!("pass-{pass}"));
        pass += 1;
        let mut cursors = Merging::open(&paths(&group), layout)?;
        let mut writer = RunWriter::create(&path, &cursors.schema)?;
        cursors.each_chunk(&mut Plain::new(|columns: &[ArrayRef], schema: &RunSchema| {
            writer.write(&RecordBatch::try_new(
                Arc::clone(&schema.arrow),
                columns.to_vec(),
            )?)
        }))?;
        drop(cursors);
        writer.finish()?;
        remove(&group)?;
        waiting.push_back((path, Kept::No));
    }
    let group: Vec<(PathBuf, Kept)> = waiting.into();
    let mut cursors = Merging::open(&paths(&group), layout)?;
    let mut writer = SegmentWriter::create(out, &cursors.schema, meta, settings)?;
    if layout.rollup {
        let mut rolled = RollUp::new(&cursors.schema, |columns: &[ArrayRef]| writer.write(columns));
        cursors.each_chunk(&mut rolled)?;
        rolled.finish()?;
    } else {
        cursors.each_chunk(&mut Plain::new(|columns: &[ArrayRef], _: &RunSchema| {
            writer.write(columns)
        }))?;
    }
    drop(cursors);
    let file = writer.finish()?;
    remove(&group)?;
    Ok(file)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

fn paths(group: &[(PathBuf, Kept)]) -> Vec<PathBuf> {
    group.iter().map(|(path, _)| path.clone()).collect()
}

fn remove(group: &[(PathBuf, Kept)]) -> Result<(), SegmentError> {
    for (path, _) in group.iter().filter(|(_, kept)| *kept == Kept::No) {
        fs::remove_file(path).map_err(SegmentError::io("remove", path))?;
    }
    Ok(())
}
