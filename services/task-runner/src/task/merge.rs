//! Merging: the runs of every segment into its one file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use tidegate_decode::Layout;
use tidegate_protocol::task::{MergedSegment, Sink, TaskRecord, Unknown};
use tidegate_segment::{MergeSettings, SegmentMeta, WRITER_VERSION};
use tidegate_spec::SupervisorSpec;
use tidegate_telemetry::families;
use tidegate_types::SequenceId;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::folder::TaskFolder;
use crate::live::Live;

/// Segments of one task that are merged at a time; all tasks together are held by `Shared::merges`.
const AT_ONCE: usize = 4;

/// One segment to merge.
struct Job {
    sequence: SequenceId,
    sink: Sink,
    meta: SegmentMeta,
    runs: Vec<PathBuf>,
    file: String,
}

/// Merges every segment of a part that took rows. The error is one line for a person.
pub(crate) async fn part(
    id: SequenceId,
    record: TaskRecord,
    spec: Arc<SupervisorSpec>,
    folder: TaskFolder,
    shared: Shared,
    live: Arc<Live>,
    stop: CancellationToken,
) -> Result<Vec<MergedSegment>, String> {
    let layout = Arc::new(Layout::of(&spec.data_schema));
    let settings = Arc::new(MergeSettings::new(
        &spec.tuning.segment_writer,
        spec.tuning.merge_fan_in,
    ));
    let life = uuid::Uuid::new_v4().simple().to_string();
    let Some(part) = record.part(id) else {
        return Ok(Vec::new());
    };
    let jobs: Vec<Job> = record
        .segments_of(part)
        .filter(|(_, sink)| sink.rows > 0)
        .enumerate()
        .map(|(number, (sequence, sink))| {
            let file = format!("segment-{}-{number:06}.parquet", &life[..8]);
            job(&record, &folder, sequence, sink, file)
        })
        .collect();
    tracing::info!(segments = jobs.len(), runs = record.runs.len(), sequence = %id, "merging");
    let began = Instant::now();
    let merging = jobs.into_iter().map(|job| {
        let (layout, settings, folder) = (layout.clone(), settings.clone(), folder.clone());
        let (stop, live, shared) = (stop.clone(), live.clone(), shared.clone());
        let supervisor = record.assignment.supervisor.clone();
        async move {
            let _turn = shared.merges.acquire().await.map_err(|error| error.to_string())?;
            if stop.is_cancelled() {
                return Err("the task is stopped".to_owned());
            }
            let began = Instant::now();
            let merged = tokio::task::spawn_blocking(move || merge(job, &layout, &settings, &folder)).await;
            let merged = merged.map_err(|error| format!("a merge ended by itself: {error}"))??;
            shared
                .metrics
                .time(&families::MERGE_TIME, [supervisor.as_str()], began.elapsed());
            live.advance(merged.rows + 1);
            Ok(merged)
        }
    });
    let segments: Vec<MergedSegment> = stream::iter(merging).buffered(AT_ONCE).try_collect().await?;
    tracing::info!(segments = segments.len(), took = ?began.elapsed(), "merged");
    Ok(segments)
}

fn job(record: &TaskRecord, folder: &TaskFolder, sequence: SequenceId, sink: &Sink, file: String) -> Job {
    let runs = record.runs.iter().filter(|run| run.segment == sink.segment);
    let (first_offsets, end_offsets) = sink.extent.offsets(sequence);
    Job {
        sequence,
        sink: sink.clone(),
        meta: SegmentMeta {
            id: sink.segment.clone(),
            sequence: record.sequence_name(sequence),
            first_offsets,
            end_offsets,
            input_rows: sink.rows,
        },
        runs: runs.map(|run| folder.rows().join(&run.file)).collect(),
        file,
    }
}

fn merge(
    job: Job,
    layout: &Layout,
    settings: &MergeSettings,
    folder: &TaskFolder,
) -> Result<MergedSegment, String> {
    let out = folder.rows().join(&job.file);
    let file = tidegate_segment::merge(&job.runs, layout, &job.meta, settings, &out)
        .map_err(|error| format!("segment {} cannot be merged: {error}", job.sink.segment))?;
    folder.disk().add(file.size_bytes);
    Ok(MergedSegment {
        sequence: job.sequence,
        segment: job.sink.segment,
        file: job.file,
        bytes: file.size_bytes,
        sha256: file.sha256,
        rows: file.rows,
        input_rows: job.sink.rows,
        extent: job.sink.extent,
        writer_version: WRITER_VERSION.to_owned(),
        unknown: Unknown::new(),
    })
}
