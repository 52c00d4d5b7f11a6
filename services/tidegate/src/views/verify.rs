//! A proof: what is published of each partition, and what is wrong.

use serde::Serialize;
use tidegate_rpc::publisher::v1::{PartitionCoverage, VerifyFault, VerifyFinding, VerifyResponse};

use crate::report::{Show, grouped, table};

#[derive(Debug, Serialize)]
struct PartitionView {
    supervisor: String,
    topic: String,
    partition: i32,
    start: i64,
    end: i64,
    ranges: u64,
    committed: Option<i64>,
    read_again: u64,
    skipped: u64,
}

impl From<PartitionCoverage> for PartitionView {
    fn from(told: PartitionCoverage) -> Self {
        Self {
            supervisor: told.supervisor_id,
            topic: told.topic,
            partition: told.partition,
            start: told.start,
            end: told.end,
            ranges: told.ranges,
            committed: (told.committed >= 0).then_some(told.committed),
            read_again: told.read_again,
            skipped: told.skipped,
        }
    }
}

#[derive(Debug, Serialize)]
struct FindingView {
    fault: &'static str,
    supervisor: String,
    subject: String,
    detail: String,
}

impl From<VerifyFinding> for FindingView {
    fn from(told: VerifyFinding) -> Self {
        let fault = match told.fault() {
            VerifyFault::Unspecified => "unknown",
            VerifyFault::Gap => "gap",
            VerifyFault::Overlap => "overlap",
            VerifyFault::Committed => "committed",
            VerifyFault::Publish => "publish",
            VerifyFault::Segment => "segment",
            VerifyFault::Object => "object",
        };
        Self {
            fault,
            supervisor: told.supervisor_id,
            subject: told.subject,
            detail: told.detail,
        }
    }
}

/// All pages together.
#[derive(Debug, Serialize)]
pub(crate) struct ProofView {
    pub(crate) ok: bool,
    data_source: String,
    deep: bool,
    partitions: Vec<PartitionView>,
    publishes: u64,
    pub(crate) segments: u64,
    unused: u64,
    rows: u64,
    pub(crate) bytes_read: u64,
    findings: Vec<FindingView>,
}

impl ProofView {
    pub(crate) fn new(data_source: String, deep: bool) -> Self {
        Self {
            ok: true,
            data_source,
            deep,
            partitions: Vec::new(),
            publishes: 0,
            segments: 0,
            unused: 0,
            rows: 0,
            bytes_read: 0,
            findings: Vec::new(),
        }
    }

    /// Adds a page.
    pub(crate) fn add(&mut self, page: VerifyResponse) {
        self.ok &= page.findings.is_empty();
        self.partitions.extend(page.coverage.into_iter().map(Into::into));
        self.publishes += page.publishes;
        self.segments += page.segments;
        self.unused += page.unused;
        self.rows += page.rows;
        self.bytes_read += page.bytes_read;
        self.findings.extend(page.findings.into_iter().map(Into::into));
    }
}

impl Show for ProofView {
    fn show(&self) -> String {
        let rows = self.partitions.iter().map(|one| {
            vec![
                one.supervisor.clone(),
                one.topic.clone(),
                one.partition.to_string(),
                one.start.to_string(),
                one.end.to_string(),
                grouped(one.ranges),
                one.committed
                    .map_or("none".to_owned(), |offset| offset.to_string()),
                grouped(one.read_again),
                grouped(one.skipped),
            ]
        });
        let heading = [
            "supervisor",
            "topic",
            "partition",
            "from",
            "to",
            "ranges",
            "committed",
            "read again",
            "skipped",
        ];
        let coverage = table(&heading, rows.collect(), "nothing was published");
        let unused = match self.unused {
            0 => String::new(),
            unused => format!(" ({} of them marked unused)", grouped(unused)),
        };
        let read = if self.deep {
            format!("; {} bytes of objects read", grouped(self.bytes_read))
        } else {
            "; objects not read (--deep reads them)".to_owned()
        };
        let summary = format!(
            "{} publishes, {} segments{unused}, {} rows{read}",
            grouped(self.publishes),
            grouped(self.segments),
            grouped(self.rows)
        );
        if self.ok {
            return format!(
                "{coverage}\n{summary}\neach offset is in exactly one published range, each segment inside of its range"
            );
        }
        let findings = self.findings.iter().map(|one| {
            vec![
                one.fault.to_owned(),
                one.supervisor.clone(),
                one.subject.clone(),
                one.detail.clone(),
            ]
        });
        let findings = table(&["fault", "supervisor", "where", "what"], findings.collect(), "");
        let count = self.findings.len();
        let plural = if count == 1 { "" } else { "s" };
        format!("{coverage}\n{summary}\n{findings}\n{count} finding{plural}")
    }
}
