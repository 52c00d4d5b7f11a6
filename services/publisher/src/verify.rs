//! Pages of a proof: is each offset of a data source in exactly one segment?
//!
//! Owns: the order in which the catalog is looked at. Promises: changes nothing; a page is bounded in segments and, when
//! objects are read, in time, so that a long proof shows its progress and can go on after any page. What is compared is
//! `tidegate_protocol::verify`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use tidegate_metadata::{CatalogSegment, Ordinal, PublisherStore, SegmentFilter};
use tidegate_objects::{Key, Objects, VerifyError};
use tidegate_protocol::verify::{Coverage, Finding, verify, verify_segment};
use tidegate_rpc::convert::{BadField, id};
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::publisher::v1::VerifyFault;
use tidegate_rpc::status::RpcError;
use tidegate_types::{DataSource, SupervisorId};

use crate::error::of_store;

/// Segments of a page when nothing is said.
const USUAL_PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1_000;
/// A page that reads objects ends after this, with at least one.
const LONGEST_PAGE: Duration = Duration::from_secs(5);
/// Objects read at a time.
const READ_AT_ONCE: usize = 4;

pub(crate) struct Verifier {
    pub(crate) store: Arc<dyn PublisherStore>,
    pub(crate) objects: Objects,
}

impl Verifier {
    /// One page.
    pub(crate) async fn page(&self, request: &wire::VerifyRequest) -> Result<wire::VerifyResponse, RpcError> {
        let data_source: DataSource = id("data_source", &request.data_source)?;
        let size = match request.page_size {
            0 => USUAL_PAGE,
            size => size.min(LARGEST_PAGE),
        };
        match request.page_token.as_str() {
            "" => self.ranges(&data_source).await,
            token => {
                let after = token
                    .parse()
                    .map_err(|_| BadField::new("page_token", "is not one that was given"))?;
                self.segments(data_source, Ordinal(after), size, request.deep)
                    .await
            }
        }
    }

    /// The first page: what every supervisor of the data source has published.
    async fn ranges(&self, data_source: &DataSource) -> Result<wire::VerifyResponse, RpcError> {
        let supervisors = self.store.publishers_of(data_source).await;
        let supervisors = supervisors.map_err(|error| of_store(&error))?;
        if supervisors.is_empty() {
            return Err(RpcError::NotFound(format!(
                "no segment of data source {data_source} was ever published"
            )));
        }
        let mut answer = wire::VerifyResponse {
            next_page_token: "0".to_owned(),
            ..wire::VerifyResponse::default()
        };
        for supervisor in supervisors {
            let evidence = self.store.evidence(&supervisor).await;
            let (topic, evidence) = evidence.map_err(|error| of_store(&error))?;
            let (coverage, findings) = verify(&evidence);
            answer.publishes += evidence.publishes.len() as u64;
            let coverage = coverage.iter().map(|one| covered(&supervisor, &topic, one));
            answer.coverage.extend(coverage);
            answer
                .findings
                .extend(findings.iter().map(|one| found(&supervisor, String::new(), one)));
        }
        Ok(answer)
    }

    async fn segments(
        &self,
        data_source: DataSource,
        after: Ordinal,
        size: u32,
        deep: bool,
    ) -> Result<wire::VerifyResponse, RpcError> {
        let begun = Instant::now();
        let filter = SegmentFilter {
            data_source: Some(data_source),
            supervisor: None,
        };
        let segments = self.store.list_segments(&filter, after, size + 1).await;
        let mut segments = segments.map_err(|error| of_store(&error))?;
        let mut is_last = segments.len() <= size as usize;
        segments.truncate(size as usize);
        let ranges = self.store.ranges_of(&segments).await;
        let ranges = ranges.map_err(|error| of_store(&error))?;
        let mut answer = wire::VerifyResponse::default();
        let mut behind = after;
        let count = segments.len() as u64;
        let looks = segments
            .into_iter()
            .zip(ranges)
            .map(|(segment, range)| async move {
                let object = if deep { self.object(&segment).await? } else { None };
                Ok::<_, RpcError>((segment, range, object))
            });
        let mut looks = stream::iter(looks).buffered(READ_AT_ONCE);
        while let Some(look) = looks.next().await {
            let (segment, range, object) = look?;
            let (supervisor, file) = (&segment.supervisor, &segment.file);
            let findings = verify_segment(range.as_ref(), file);
            answer.findings.extend(
                findings
                    .iter()
                    .map(|one| found(supervisor, file.id.to_string(), one)),
            );
            answer.bytes_read += if deep && object.is_none() {
                file.size_bytes
            } else {
                0
            };
            answer.findings.extend(object.map(|detail| wire::VerifyFinding {
                fault: VerifyFault::Object.into(),
                supervisor_id: supervisor.to_string(),
                subject: file.id.to_string(),
                detail,
            }));
            answer.segments += 1;
            answer.rows += file.rows;
            answer.unused += u64::from(!segment.used);
            behind = segment.ordinal;
            if deep && begun.elapsed() >= LONGEST_PAGE && answer.segments < count {
                is_last = false;
                break;
            }
        }
        if !is_last {
            answer.next_page_token = behind.0.to_string();
        }
        Ok(answer)
    }

    /// What is wrong with the object; it may have moved to its final key since the catalog was read.
    async fn object(&self, segment: &CatalogSegment) -> Result<Option<String>, RpcError> {
        let first = self.read(segment).await?;
        if first.is_none() || segment.promoted {
            return Ok(first);
        }
        let filter = SegmentFilter {
            data_source: Some(segment.file.id.data_source.clone()),
            supervisor: None,
        };
        let again = self
            .store
            .list_segments(&filter, Ordinal(segment.ordinal.0 - 1), 1)
            .await;
        match again.map_err(|error| of_store(&error))?.first() {
            Some(moved) if moved.file.key != segment.file.key => self.read(moved).await,
            _ => Ok(first),
        }
    }

    async fn read(&self, segment: &CatalogSegment) -> Result<Option<String>, RpcError> {
        let file = &segment.file;
        let key = match Key::parse(&file.key) {
            Ok(key) => key,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let result = self
            .objects
            .verify(&key, file.size_bytes, &file.sha256, file.rows)
            .await;
        match result {
            Ok(()) => Ok(None),
            Err(VerifyError::Missing { key }) => Ok(Some(format!("object {key} is not there"))),
            Err(VerifyError::Differs { key, difference }) => Ok(Some(format!(
                "object {key} is not what was published: {difference}"
            ))),
            // Nothing is known about the object: that is no proof, and no finding.
            Err(error @ VerifyError::Store(_)) => Err(RpcError::Unavailable(
                error.to_string(),
                crate::error::RETRY_PAUSE,
            )),
        }
    }
}

fn covered(supervisor: &SupervisorId, topic: &str, coverage: &Coverage) -> wire::PartitionCoverage {
    wire::PartitionCoverage {
        supervisor_id: supervisor.to_string(),
        topic: topic.to_owned(),
        partition: coverage.partition.0,
        start: coverage.range.start.0,
        end: coverage.range.end.0,
        ranges: coverage.ranges,
        committed: coverage.committed.map_or(-1, |offset| offset.0),
        read_again: coverage.read_again,
        skipped: coverage.skipped,
    }
}

fn found(supervisor: &SupervisorId, subject: String, finding: &Finding) -> wire::VerifyFinding {
    let (fault, subject) = match finding {
        Finding::Gap { partition, .. } => (VerifyFault::Gap, format!("partition {partition}")),
        Finding::Overlap { partition, .. } => (VerifyFault::Overlap, format!("partition {partition}")),
        Finding::Committed { partition, .. } => (VerifyFault::Committed, format!("partition {partition}")),
        Finding::Publish(sums) => (VerifyFault::Publish, format!("publish {}", sums.publish)),
        Finding::NoRange { .. } | Finding::Outside { .. } => (VerifyFault::Segment, subject),
    };
    wire::VerifyFinding {
        fault: fault.into(),
        supervisor_id: supervisor.to_string(),
        subject,
        detail: finding.to_string(),
    }
}
