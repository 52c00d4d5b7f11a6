//! Asking the publisher for segments, from the reading thread, in the middle of a record.

use std::time::Duration;

use tidegate_protocol::task::{AllocationRequest, Assignment, TaskEvent};
use tidegate_rpc::clients::PublisherClient;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_spec::SupervisorSpec;
use tidegate_types::{Granularity, Interval, SegmentId, TimestampMillis};
use tokio::runtime::Handle;

use super::Attention;
use crate::task::Inbox;

/// Pauses between two tries while the publisher is away.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long an answer that is under way may still take when the thread is wanted elsewhere. It comes in
/// milliseconds; giving up on it costs the whole prefetch, since its record must be read again.
const GRACE: Duration = Duration::from_millis(200);

/// Where the row lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Floored to the query granularity.
    pub(crate) time: TimestampMillis,
    /// Bucket of the segment granularity.
    pub(crate) segment: Interval,
    /// Its own time.
    pub(crate) instant: TimestampMillis,
}

/// Why there is no segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoSegment {
    /// The thread has something else to do first; the record is not taken.
    Interrupted,
    /// There will never be one.
    Refused(String),
}

/// Asks, and asks again.
pub(crate) struct Allocator {
    runtime: Handle,
    client: PublisherClient,
    attention: Attention,
    inbox: Inbox,
    assignment: Assignment,
    data_source: String,
    query: Granularity,
    finer: Vec<Granularity>,
}

impl Allocator {
    pub(crate) fn new(
        runtime: Handle,
        client: PublisherClient,
        attention: Attention,
        inbox: Inbox,
        assignment: Assignment,
        spec: &SupervisorSpec,
    ) -> Self {
        let schema = &spec.data_schema;
        Self {
            runtime,
            client,
            attention,
            inbox,
            assignment,
            data_source: schema.data_source.to_string(),
            query: schema.granularity.query.clone(),
            finer: schema.granularity.segment.finer(),
        }
    }

    /// A segment that takes the row. Outages are waited out; the same question gets the same answer, so an answer
    /// that got lost costs nothing.
    pub(crate) fn allocate(&self, wanted: &AllocationRequest, place: Place) -> Result<SegmentId, NoSegment> {
        let request = self.request(wanted, place);
        let interrupt = self.attention.interrupt();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = self.until_answered(&request) => answer,
                () = async { interrupt.cancelled().await; tokio::time::sleep(GRACE).await } => {
                    Err(NoSegment::Interrupted)
                }
            }
        })
    }

    async fn until_answered(&self, request: &wire::AllocateSegmentRequest) -> Result<SegmentId, NoSegment> {
        let mut wait = FIRST_WAIT;
        let mut hindered = false;
        loop {
            let mut client = self.client.clone();
            let status = match client.allocate_segment(request.clone()).await {
                Ok(answer) => {
                    if hindered {
                        self.inbox.send(TaskEvent::Hindered(String::new()));
                    }
                    return checked(answer.into_inner(), request);
                }
                Err(status) => status,
            };
            if !tidegate_rpc::status::is_retryable(&status) {
                return Err(NoSegment::Refused(format!(
                    "no segment for the row at {} of sequence {} ({}): {}",
                    TimestampMillis(request.row_millis),
                    request.sequence_name,
                    status.code(),
                    status.message()
                )));
            }
            tracing::warn!(code = %status.code(), message = status.message(), "a segment is asked for again");
            hindered = true;
            self.inbox.send(TaskEvent::Hindered(format!(
                "waiting for a segment, the publisher answers {}: {}",
                status.code(),
                status.message()
            )));
            let asked = tidegate_rpc::status::retry_after(&status);
            tokio::time::sleep(asked.unwrap_or(wait).min(LONGEST_WAIT)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn request(&self, wanted: &AllocationRequest, place: Place) -> wire::AllocateSegmentRequest {
        let given = &self.assignment;
        let sequence = given.base_sequence_name.sequence(wanted.sequence);
        let holds = |finer: &Granularity| {
            finer
                .bucket(place.time)
                .filter(|bucket| bucket.contains(place.time))
        };
        wire::AllocateSegmentRequest {
            supervisor_id: given.supervisor.to_string(),
            data_source: self.data_source.clone(),
            row_millis: place.time.0,
            preferred: Some(place.segment.into()),
            sequence_name: sequence.to_string(),
            previous_segment_id: wanted
                .previous
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            by_interval: wanted.by_interval,
            assignment_token: given.token.to_string(),
            generation: given.generation.0,
            group_id: given.group.to_string(),
            finer: self.finer.iter().filter_map(holds).map(Into::into).collect(),
            row_bucket: Some(row_bucket(&self.query, place).into()),
        }
    }
}

/// The times that rows of this bucket have: a query bucket never reaches over the borders of its segment.
fn row_bucket(query: &Granularity, place: Place) -> Interval {
    let behind = TimestampMillis(place.time.0.saturating_add(1));
    let end = match query {
        Granularity::None => behind,
        _ => query
            .bucket(place.instant)
            .map_or(behind, |bucket| bucket.end().min(place.segment.end())),
    };
    Interval::new(place.time, end).unwrap_or(place.segment)
}

fn checked(
    answer: wire::AllocateSegmentResponse,
    request: &wire::AllocateSegmentRequest,
) -> Result<SegmentId, NoSegment> {
    let refused = |why: String| NoSegment::Refused(format!("the publisher's answer cannot be used: {why}"));
    let Some(id) = &answer.id else {
        return Err(refused("it names no segment".to_owned()));
    };
    let id = SegmentId::try_from(id).map_err(|error| refused(error.to_string()))?;
    if id.interval.contains(TimestampMillis(request.row_millis)) {
        Ok(id)
    } else {
        // Taking it would ask again, for ever.
        Err(refused(format!(
            "segment {id} does not hold the row at {}",
            TimestampMillis(request.row_millis)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(time: i64, instant: i64) -> Place {
        let segment = Interval::new(TimestampMillis(HOUR), TimestampMillis(2 * HOUR)).unwrap();
        Place {
            time: TimestampMillis(time),
            segment,
            instant: TimestampMillis(instant),
        }
    }

    #[test]
    fn a_query_bucket_is_cut_at_the_borders_of_its_segment() {
        let (time, instant) = (HOUR, HOUR + 90_000);
        let minute = HOUR + 60_000;
        for (query, place, end) in [
            (Granularity::None, at(instant, instant), instant + 1),
            (Granularity::Minute, at(minute, instant), minute + 60_000),
            (Granularity::Day, at(time, instant), 2 * HOUR),
            (Granularity::All, at(time, instant), 2 * HOUR),
        ] {
            let bucket = row_bucket(&query, place);
            assert_eq!((bucket.start(), bucket.end().0), (place.time, end), "{query:?}");
        }
    }

    #[test]
    fn b62_an_answer_that_does_not_hold_the_row_is_refused_rather_than_asked_for_ever() {
        let request = wire::AllocateSegmentRequest {
            row_millis: 5,
            ..Default::default()
        };
        let elsewhere = SegmentId {
            partition_num: 0,
            ..crate::assignment::tests::segment(0)
        };
        let moved = SegmentId {
            interval: Interval::new(TimestampMillis(10), TimestampMillis(20)).unwrap(),
            ..elsewhere.clone()
        };
        let answer = |id: &SegmentId| wire::AllocateSegmentResponse { id: Some(id.into()) };
        assert_eq!(checked(answer(&elsewhere), &request), Ok(elsewhere));
        assert!(matches!(
            checked(answer(&moved), &request),
            Err(NoSegment::Refused(_))
        ));
        assert!(matches!(
            checked(wire::AllocateSegmentResponse { id: None }, &request),
            Err(NoSegment::Refused(_))
        ));
    }
}
