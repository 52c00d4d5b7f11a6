//! The persisting thread: spills rows beside reading, one persist after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TrySendError};
use std::thread;
use std::time::Instant;

use tidegate_protocol::task::{ReadState, Run, SinkKey, Snapshot, TaskEvent, Ticket};
use tidegate_segment::MemRun;
use tidegate_telemetry::{Metrics, families};
use tidegate_types::{SegmentId, SupervisorId};
use tokio_util::sync::CancellationToken;

use crate::folder::DiskUse;
use crate::live::Live;
use crate::task::Inbox;

/// Rows of one segment, on their way out of memory.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) key: SinkKey,
    pub(crate) segment: SegmentId,
    pub(crate) rows: MemRun,
}

/// Everything that one persist makes durable.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) read: ReadState,
    pub(crate) spills: Vec<Spill>,
    pub(crate) bytes: u64,
}

/// The reading thread's end.
#[derive(Debug)]
pub(crate) struct Persister {
    jobs: mpsc::SyncSender<Job>,
    /// Bytes of rows that are being persisted or wait for it.
    bytes: Arc<AtomicU64>,
}

struct Worker {
    rows: PathBuf,
    life: String,
    files: u64,
    bytes: Arc<AtomicU64>,
    seed: PersisterSeed,
}

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct PersisterSeed {
    pub(crate) folder: PathBuf,
    pub(crate) disk: Arc<DiskUse>,
    pub(crate) inbox: Inbox,
    pub(crate) live: Arc<Live>,
    pub(crate) metrics: Metrics,
    pub(crate) supervisor: SupervisorId,
    pub(crate) stop: CancellationToken,
}

impl Persister {
    /// `pending` persists may wait behind the one under way.
    pub(crate) fn start(seed: PersisterSeed, pending: usize) -> Result<Self, String> {
        let (jobs, todo) = mpsc::sync_channel::<Job>(pending);
        let bytes = Arc::new(AtomicU64::new(0));
        let mut worker = Worker {
            rows: seed.folder.clone(),
            // File names are never used twice, whatever an earlier life of the task left.
            life: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            files: 0,
            bytes: bytes.clone(),
            seed,
        };
        thread::Builder::new()
            .name("persist".to_owned())
            .spawn(move || {
                for job in todo {
                    if worker.seed.stop.is_cancelled() || !worker.persist(job) {
                        return;
                    }
                }
            })
            .map_err(|error| format!("the persisting thread cannot be started: {error}"))?;
        Ok(Self { jobs, bytes })
    }

    /// Takes a job unless too many wait; gives it back then.
    pub(crate) fn offer(&self, job: Job) -> Result<(), Box<Job>> {
        let bytes = job.bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.jobs.try_send(job) {
            Ok(()) => Ok(()),
            // The thread ends only after it has told the task of an error, or because the task is over.
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                Err(Box::new(job))
            }
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// False after an error, which ends the task: a later persist must not hide the hole.
    fn persist(&mut self, job: Job) -> bool {
        let began = Instant::now();
        let Job {
            ticket,
            read,
            spills,
            bytes,
        } = job;
        let mut runs = Vec::with_capacity(spills.len());
        let rows: usize = spills.iter().map(|spill| spill.rows.rows()).sum();
        for spill in spills {
            match self.spill(spill) {
                Ok(run) => runs.push(run),
                Err(error) => {
                    let detail = format!("rows cannot be spilled to {}: {error}", self.rows.display());
                    self.seed.inbox.send(TaskEvent::Failed { detail });
                    return false;
                }
            }
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.seed.live.advance(rows as u64 + 1);
        let supervisor = self.seed.supervisor.as_str();
        if !runs.is_empty() {
            self.seed.metrics.count(&families::PERSISTS, [supervisor], 1);
            self.seed
                .metrics
                .time(&families::PERSIST_TIME, [supervisor], began.elapsed());
            tracing::debug!(rows, files = runs.len(), took = ?began.elapsed(), next = %read.next, "persisted");
        }
        self.seed.inbox.send(TaskEvent::Persisted {
            ticket,
            snapshot: Box::new(Snapshot { read, runs }),
        });
        true
    }

    fn spill(&mut self, spill: Spill) -> Result<Run, tidegate_segment::SegmentError> {
        self.files += 1;
        let file = format!("run-{}-{:06}.arrow", self.life, self.files);
        let info = tidegate_segment::persist(&spill.rows, &self.rows.join(&file))?;
        self.seed.disk.add(info.size_bytes);
        Ok(Run {
            sequence: spill.key.sequence,
            segment: spill.segment,
            ordinal: spill.key.ordinal,
            file,
            bytes: info.size_bytes,
            sha256: info.sha256,
            rows: info.rows,
            unknown: tidegate_protocol::task::Unknown::new(),
        })
    }
}
