//! The allocation decision: which segment id does a row of a sequence get?
//!
//! Owns: the choice of interval, version and number. Promises: the same request always gets the same answer,
//! whoever asks and however often; numbers within (interval, version) only grow and are never used again, not
//! even those of segments that are long gone (D40); intervals of one data source never overlap in part. Must
//! never: read a clock (the version of a new interval is given).

#[cfg(test)]
mod tests;

use tidegate_types::{DataSource, Interval, SegmentId, SegmentVersion, SequenceName, TimestampMillis};

/// A wish for a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationRequest {
    pub data_source: DataSource,
    pub sequence: SequenceName,
    pub lineage: Lineage,
    /// Time of the row, floored to the query granularity.
    pub row: TimestampMillis,
    /// Bucket of the query granularity that holds the row; the answer's interval contains it.
    pub row_bucket: Interval,
    /// Bucket of the segment granularity that holds the row.
    pub preferred: Interval,
    /// Finer buckets that hold the row, largest first.
    pub finer: Vec<Interval>,
}

/// What makes two requests of one sequence the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lineage {
    /// Legacy: the segment that the sequence had before, text form of its id; `None` for its first. One Kafka
    /// partition is read in the same order by every replica, so all of them ask the same chain.
    After(Option<String>),
    /// Checkpointing: replicas meet intervals in different orders, so there is one segment per (sequence,
    /// interval) and no chain (D12).
    ByInterval,
}

impl Lineage {
    /// The part of a stored answer's unique key, for an answer with this interval.
    pub fn key(&self, interval: Interval) -> String {
        match self {
            Self::After(previous) => format!("after:{}", previous.as_deref().unwrap_or_default()),
            Self::ByInterval => format!("in:{}/{}", interval.start().0, interval.end().0),
        }
    }
}

/// One (interval, version) of a data source that has, or ever had, segments: pending, published, used or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub interval: Interval,
    pub version: SegmentVersion,
    /// Higher than every number ever given.
    pub next_number: u32,
}

/// What is stored, as one consistent read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocationState {
    /// Answers that this sequence was given under the request's key: with `After`, the one for the same previous
    /// id; with `ByInterval`, those that overlap the row bucket.
    pub answers: Vec<SegmentId>,
    /// Every chunk of the data source that overlaps the row bucket or a wanted bucket.
    pub chunks: Vec<Chunk>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationDecision {
    /// Given before.
    Existing(SegmentId),
    /// New: to be stored, then given.
    New(SegmentId),
    Refused(AllocationRefusal),
}

/// Why there is no segment for the row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationRefusal {
    #[error("the preferred interval {preferred} does not hold the row at {row}")]
    RowOutside {
        row: TimestampMillis,
        preferred: Interval,
    },
    #[error(
        "coarser query granularity than the interval: the row's bucket {row_bucket} does not fit into {interval}; \
         choose a query granularity that is at most as coarse as the segments"
    )]
    CoarserQueryGranularity {
        row_bucket: Interval,
        interval: Interval,
    },
    #[error(
        "sequence {sequence} was given {existing} at this point of its lineage, which does not hold {row_bucket}: \
         the sequence forked, its rows were not read in the same order"
    )]
    Forked {
        sequence: SequenceName,
        existing: SegmentId,
        row_bucket: Interval,
    },
    #[error("every bucket that holds the row at {row} overlaps an interval that does not: {blocking}")]
    NoFreeBucket {
        row: TimestampMillis,
        blocking: Interval,
    },
    #[error("interval {interval} version {version} has no numbers left")]
    NoNumberLeft {
        interval: Interval,
        version: SegmentVersion,
    },
}

/// Decides. `new_version` is the version of an interval that has none yet.
pub fn decide(
    state: &AllocationState,
    request: &AllocationRequest,
    new_version: &SegmentVersion,
) -> AllocationDecision {
    match choose(state, request, new_version) {
        Ok(decision) => decision,
        Err(refusal) => AllocationDecision::Refused(refusal),
    }
}

fn choose(
    state: &AllocationState,
    request: &AllocationRequest,
    new_version: &SegmentVersion,
) -> Result<AllocationDecision, AllocationRefusal> {
    let AllocationRequest {
        row,
        row_bucket,
        preferred,
        ..
    } = *request;
    if !row_bucket.contains(row) || !preferred.contains(row) {
        return Err(AllocationRefusal::RowOutside { row, preferred });
    }
    if let Some(existing) = given_before(state, request)? {
        return Ok(AllocationDecision::Existing(existing));
    }
    let visible = visible(&state.chunks);
    let mut holding = visible.iter().filter(|chunk| chunk.interval.overlaps(row_bucket));
    let (interval, version, partition_num) = match holding.next() {
        Some(chunk) => {
            // The first that does not hold the whole bucket names the fault; two intervals cannot both hold it.
            if !chunk.interval.encloses(row_bucket) {
                let interval = chunk.interval;
                return Err(AllocationRefusal::CoarserQueryGranularity { row_bucket, interval });
            }
            (chunk.interval, chunk.version.clone(), chunk.next_number)
        }
        None => (free_bucket(&visible, request)?, new_version.clone(), 0),
    };
    if partition_num == u32::MAX {
        return Err(AllocationRefusal::NoNumberLeft { interval, version });
    }
    let data_source = request.data_source.clone();
    Ok(AllocationDecision::New(SegmentId {
        data_source,
        interval,
        version,
        partition_num,
    }))
}

/// The answer that the same request got before.
fn given_before(
    state: &AllocationState,
    request: &AllocationRequest,
) -> Result<Option<SegmentId>, AllocationRefusal> {
    let row_bucket = request.row_bucket;
    if let Some(holds) = state.answers.iter().find(|id| id.interval.encloses(row_bucket)) {
        return Ok(Some(holds.clone()));
    }
    match (&request.lineage, state.answers.first()) {
        (Lineage::After(_), Some(existing)) => Err(AllocationRefusal::Forked {
            sequence: request.sequence.clone(),
            existing: existing.clone(),
            row_bucket,
        }),
        (Lineage::After(_) | Lineage::ByInterval, _) => Ok(None),
    }
}

/// Chunks that no newer version stands over, the newest of each interval only.
fn visible(chunks: &[Chunk]) -> Vec<&Chunk> {
    let hidden = |chunk: &Chunk| {
        chunks
            .iter()
            .any(|other| other.version > chunk.version && other.interval.encloses(chunk.interval))
    };
    chunks.iter().filter(|chunk| !hidden(chunk)).collect()
}

/// The largest wanted bucket that holds the row's bucket and overlaps nothing.
fn free_bucket(visible: &[&Chunk], request: &AllocationRequest) -> Result<Interval, AllocationRefusal> {
    let AllocationRequest {
        row,
        row_bucket,
        preferred,
        ..
    } = *request;
    let wanted = std::iter::once(preferred).chain(request.finer.iter().copied());
    let fitting: Vec<Interval> = wanted.filter(|bucket| bucket.encloses(row_bucket)).collect();
    if fitting.is_empty() {
        return Err(AllocationRefusal::CoarserQueryGranularity {
            row_bucket,
            interval: preferred,
        });
    }
    let mut blocking = preferred;
    for bucket in fitting {
        match visible.iter().find(|chunk| chunk.interval.overlaps(bucket)) {
            None => return Ok(bucket),
            Some(chunk) => blocking = chunk.interval,
        }
    }
    Err(AllocationRefusal::NoFreeBucket { row, blocking })
}
