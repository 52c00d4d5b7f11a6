//! A supervisor named `wiki` on topic `wiki`, its groups and their wishes.

use tidegate_metadata::{
    Allocate, CatalogSegment, CommittedOffsets, Document, InitializeOffsets, Metadata, Ordinal, Publish,
    PublishAnswer, PublisherError, PublisherStore, RegisterGroup, ResetOffsets, SegmentFilter,
};
use tidegate_protocol::allocate::{AllocationRequest, Lineage};
use tidegate_protocol::publish::{GroupMode, PublishDecision, PublishRequest, SegmentFile, StreamId};
use tidegate_protocol::sequence::{Sequence, legacy_sequences};
use tidegate_types::{
    AssignmentToken, BaseSequenceName, ClusterId, DataSource, DecodeVersion, Epoch, Generation, GroupId,
    Interval, Offset, PartitionOffsets, SegmentId, SupervisorId, TaskId, TimestampMillis, TopicId,
};

pub(crate) const HOUR: i64 = 3_600_000;
/// 2026-01-01T00:00:00Z
pub(crate) const NOW: TimestampMillis = TimestampMillis(1_767_225_600_000);

pub(crate) fn at<const N: usize>(pairs: [(i32, i64); N]) -> PartitionOffsets {
    PartitionOffsets::from(pairs)
}

pub(crate) fn stream() -> StreamId {
    StreamId {
        topic: "wiki".into(),
        cluster: ClusterId("c1".into()),
        incarnation: TopicId("t1".into()),
    }
}

pub(crate) fn wiki() -> SupervisorId {
    SupervisorId::new("wiki").unwrap()
}

pub(crate) fn interval(start: i64, end: i64) -> Interval {
    Interval::new(TimestampMillis(start), TimestampMillis(end)).unwrap()
}

/// A group, named after `name` in everything.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) supervisor: SupervisorId,
    pub(crate) name: String,
    pub(crate) generation: Generation,
    pub(crate) start: PartitionOffsets,
    pub(crate) end: PartitionOffsets,
}

impl Group {
    pub(crate) fn new(name: &str, start: PartitionOffsets, end: PartitionOffsets) -> Self {
        Self {
            supervisor: wiki(),
            name: name.into(),
            generation: Generation(0),
            start,
            end,
        }
    }
    pub(crate) fn id(&self) -> GroupId {
        GroupId::new(self.name.as_str()).unwrap()
    }
    pub(crate) fn base(&self) -> BaseSequenceName {
        BaseSequenceName::new(format!("base_{}", self.name)).unwrap()
    }
    pub(crate) fn token(&self, replica: u32) -> AssignmentToken {
        AssignmentToken::new(format!("{}-{replica}", self.name)).unwrap()
    }
    pub(crate) fn sequences(&self) -> Vec<Sequence> {
        legacy_sequences(&self.base(), &self.start, Some(&self.end))
    }
    pub(crate) fn registration(&self, epoch: u64) -> RegisterGroup {
        RegisterGroup {
            supervisor: self.supervisor.clone(),
            group: self.id(),
            base: self.base(),
            generation: self.generation,
            start: self.start.clone(),
            tokens: vec![self.token(0), self.token(1)],
            epoch: Epoch(epoch),
            revision: 0,
            mode: GroupMode::Legacy,
            topic: "wiki".into(),
            at: NOW,
        }
    }
    pub(crate) async fn register(&self, store: &Metadata) {
        store.register_group(&self.registration(1)).await.unwrap();
    }
    /// The wish of a replica, with these segments.
    pub(crate) fn wish(&self, replica: u32, segments: Vec<SegmentFile>) -> Publish {
        Publish {
            request: PublishRequest {
                supervisor: self.supervisor.clone(),
                group: self.id(),
                base: self.base(),
                generation: self.generation,
                token: self.token(replica),
                mode: GroupMode::Legacy,
                stream: stream(),
                sequences: self.sequences(),
                segments,
            },
            task: TaskId::new(format!("{}-task-{replica}", self.name)).unwrap(),
            epoch: Epoch(1),
            counts: Document::of(1, 1, &serde_json::json!({ "accepted": 3 })).unwrap(),
            request_key: format!("{}-{replica}", self.name),
            decode_version: DecodeVersion(1),
            at: NOW,
        }
    }
    /// The wish for an hour segment of a row at `row`, in partition `partition`'s sequence.
    pub(crate) fn allocate(&self, partition: i32, previous: Option<&SegmentId>, row: i64) -> Allocate {
        let sequence = self
            .sequences()
            .into_iter()
            .find(|sequence| sequence.id.0 == partition.unsigned_abs());
        let bucket = |width: i64| {
            let start = row.div_euclid(width) * width;
            interval(start, start + width)
        };
        Allocate {
            supervisor: self.supervisor.clone(),
            group: self.id(),
            generation: self.generation,
            token: self.token(0),
            request: AllocationRequest {
                data_source: DataSource::new("wiki").unwrap(),
                sequence: sequence.unwrap().name,
                lineage: Lineage::After(previous.map(ToString::to_string)),
                row: TimestampMillis(row),
                row_bucket: bucket(60_000),
                preferred: bucket(HOUR),
                finer: vec![bucket(HOUR / 6), bucket(60_000)],
            },
            at: NOW,
        }
    }
    /// A segment file of one partition's whole range, with an id given by the store.
    pub(crate) async fn segment(&self, store: &Metadata, partition: i32, replica: u32) -> SegmentFile {
        let id = store.allocate(&self.allocate(partition, None, 5)).await.unwrap();
        self.file(id, partition, replica)
    }
    pub(crate) fn file(&self, id: SegmentId, partition: i32, replica: u32) -> SegmentFile {
        let sequences = self.sequences();
        let sequence = sequences
            .iter()
            .find(|sequence| sequence.id.0 == partition.unsigned_abs())
            .unwrap();
        SegmentFile {
            key: format!(
                "staging/{}-{replica}/{}-{}.parquet",
                self.name, partition, id.partition_num
            ),
            id,
            sequence: sequence.name.clone(),
            size_bytes: 1234,
            sha256: format!("{replica:064x}"),
            rows: 3,
            input_rows: 4,
            first_offsets: sequence.start.clone(),
            end_offsets: sequence.end.clone(),
            writer_version: "0.1.0".into(),
        }
    }
}

pub(crate) async fn initialize(store: &Metadata, start: PartitionOffsets) -> CommittedOffsets {
    try_initialize(store, start, stream()).await.unwrap()
}

pub(crate) async fn try_initialize(
    store: &Metadata,
    start: PartitionOffsets,
    stream: StreamId,
) -> Result<CommittedOffsets, PublisherError> {
    let call = InitializeOffsets {
        supervisor: wiki(),
        stream,
        start,
        epoch: Epoch(1),
        at: NOW,
    };
    store.initialize_offsets(&call).await
}

pub(crate) fn reset(key: &str) -> ResetOffsets {
    ResetOffsets {
        supervisor: wiki(),
        topic: "wiki".into(),
        partitions: vec![],
        new_offsets: PartitionOffsets::new(),
        expected: None,
        who: "operator".into(),
        why: "a test".into(),
        request_key: key.into(),
        epoch: Epoch(1),
        stream: None,
        at: NOW,
    }
}

pub(crate) async fn committed(store: &Metadata) -> PartitionOffsets {
    store
        .committed_offsets(&wiki(), "wiki")
        .await
        .unwrap()
        .unwrap()
        .offsets
}

pub(crate) async fn catalog(store: &Metadata) -> Vec<CatalogSegment> {
    store
        .list_segments(&SegmentFilter::default(), Ordinal(0), 10_000)
        .await
        .unwrap()
}

pub(crate) fn is_published(answer: &PublishAnswer) -> bool {
    matches!(answer.decision, PublishDecision::Publish { .. })
}

pub(crate) const OPEN: Offset = Offset::OPEN;
