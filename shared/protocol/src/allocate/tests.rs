//! The original's allocation vectors, and the rules that it broke.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn interval(start: i64, end: i64) -> Interval {
    Interval::new(TimestampMillis(start), TimestampMillis(end)).unwrap()
}

fn bucket(row: i64, width: i64) -> Interval {
    let start = row.div_euclid(width) * width;
    interval(start, start + width)
}

fn version(text: &str) -> SegmentVersion {
    SegmentVersion::new(text).unwrap()
}

/// A store of answers in memory, as simple as can be.
#[derive(Default)]
struct Store {
    given: BTreeMap<(SequenceName, String), SegmentId>,
    all: Vec<SegmentId>,
}

impl Store {
    fn state(&self, request: &AllocationRequest) -> AllocationState {
        let answers = match &request.lineage {
            after @ Lineage::After(_) => self
                .given
                .get(&(request.sequence.clone(), after.key(request.preferred)))
                .cloned()
                .into_iter()
                .collect(),
            Lineage::ByInterval => self
                .given
                .iter()
                .filter(|((sequence, key), id)| {
                    *sequence == request.sequence
                        && key.starts_with("in:")
                        && id.interval.overlaps(request.row_bucket)
                })
                .map(|(_, id)| id.clone())
                .collect(),
        };
        let mut chunks: Vec<Chunk> = Vec::new();
        for id in &self.all {
            match chunks
                .iter_mut()
                .find(|chunk| chunk.interval == id.interval && chunk.version == id.version)
            {
                Some(chunk) => chunk.next_number = chunk.next_number.max(id.partition_num + 1),
                None => chunks.push(Chunk {
                    interval: id.interval,
                    version: id.version.clone(),
                    next_number: id.partition_num + 1,
                }),
            }
        }
        AllocationState { answers, chunks }
    }

    fn ask_at(&mut self, request: &AllocationRequest, now: &str) -> Result<SegmentId, AllocationRefusal> {
        match decide(&self.state(request), request, &version(now)) {
            AllocationDecision::Existing(id) => Ok(id),
            AllocationDecision::New(id) => {
                let key = (request.sequence.clone(), request.lineage.key(id.interval));
                assert!(
                    self.given.insert(key, id.clone()).is_none(),
                    "the unique key was there already"
                );
                self.all.push(id.clone());
                Ok(id)
            }
            AllocationDecision::Refused(refusal) => Err(refusal),
        }
    }

    fn ask(&mut self, request: &AllocationRequest) -> Result<SegmentId, AllocationRefusal> {
        self.ask_at(request, "v1")
    }
}

/// A wish for an hour segment at `row`, minute rows, finer buckets of 10 minutes and 1 minute.
fn hourly(sequence: &str, previous: Option<&SegmentId>, row: i64) -> AllocationRequest {
    AllocationRequest {
        data_source: DataSource::new("wiki").unwrap(),
        sequence: SequenceName::new(sequence).unwrap(),
        lineage: Lineage::After(previous.map(ToString::to_string)),
        row: TimestampMillis(row),
        row_bucket: bucket(row, 60_000),
        preferred: bucket(row, HOUR),
        finer: vec![bucket(row, HOUR / 6), bucket(row, 60_000)],
    }
}

fn by_interval(request: AllocationRequest) -> AllocationRequest {
    AllocationRequest {
        lineage: Lineage::ByInterval,
        ..request
    }
}

#[test]
fn a_chain_of_previous_ids_gives_numbers_0_1_2_and_repeating_gives_the_same() {
    let mut store = Store::default();
    let first = store.ask(&hourly("s1", None, 5)).unwrap();
    let second = store.ask(&hourly("s1", Some(&first), 5)).unwrap();
    let third = store.ask(&hourly("s1", Some(&second), 5)).unwrap();
    assert_eq!(
        [first.partition_num, second.partition_num, third.partition_num],
        [0, 1, 2]
    );
    for _ in 0..3 {
        assert_eq!(store.ask_at(&hourly("s1", None, 5), "later").unwrap(), first);
        assert_eq!(
            store.ask_at(&hourly("s1", Some(&first), 5), "later").unwrap(),
            second
        );
        assert_eq!(
            store.ask_at(&hourly("s1", Some(&second), 5), "later").unwrap(),
            third
        );
    }
    assert_eq!(store.ask(&hourly("s2", None, 5)).unwrap().partition_num, 3);
}

#[test]
fn a_resumed_sequence_goes_on_after_a_restart() {
    let mut store = Store::default();
    let first = store.ask(&hourly("s1", None, 5)).unwrap();
    // Same place, another interval: the sequence forked.
    assert!(matches!(
        store.ask(&hourly("s1", None, HOUR + 5)),
        Err(AllocationRefusal::Forked { .. })
    ));
    // Same place, another granularity is preferred now, but it maps into the same interval.
    let daily = AllocationRequest {
        preferred: bucket(5, DAY),
        ..hourly("s1", None, 5)
    };
    assert_eq!(store.ask(&daily).unwrap(), first);
    assert_eq!(
        store.ask(&hourly("s1", Some(&first), HOUR + 5)).unwrap().interval,
        bucket(HOUR, HOUR)
    );
}

#[test]
fn several_sequences_stand_side_by_side_in_one_interval() {
    let mut store = Store::default();
    let mut last: BTreeMap<&str, SegmentId> = BTreeMap::new();
    for number in 0..12u32 {
        let sequence = ["s1", "s2", "s3"][number as usize % 3];
        let id = store.ask(&hourly(sequence, last.get(sequence), 5)).unwrap();
        assert_eq!(id.partition_num, number);
        last.insert(sequence, id);
    }
    assert_eq!(store.ask(&hourly("s1", None, 5)).unwrap().partition_num, 0);
}

#[test]
fn a_row_joins_the_existing_interval_that_contains_it_coarser_or_finer() {
    // A day is there, an hour is wanted.
    let mut store = Store::default();
    let day = store
        .ask_at(
            &AllocationRequest {
                preferred: bucket(5, DAY),
                ..hourly("s1", None, 5)
            },
            "v1",
        )
        .unwrap();
    let joined = store.ask_at(&hourly("s2", None, 7 * HOUR), "v2").unwrap();
    assert_eq!(
        (joined.interval, joined.version.as_str(), joined.partition_num),
        (day.interval, "v1", 1)
    );
    // An hour is there, a day is wanted: rows of that hour join it; other rows get what is free.
    let mut store = Store::default();
    let hour = store.ask_at(&hourly("s1", None, 5), "v1").unwrap();
    let daily = |sequence, row| AllocationRequest {
        preferred: bucket(row, DAY),
        finer: vec![bucket(row, HOUR), bucket(row, 60_000)],
        ..hourly(sequence, None, row)
    };
    let joined = store.ask_at(&daily("s2", 6), "v2").unwrap();
    assert_eq!(
        (joined.interval, joined.version.as_str(), joined.partition_num),
        (hour.interval, "v1", 1)
    );
    let beside = store.ask_at(&daily("s3", 3 * HOUR), "v2").unwrap();
    assert_eq!(
        (beside.interval, beside.version.as_str(), beside.partition_num),
        (bucket(3 * HOUR, HOUR), "v2", 0)
    );
    let next_day = store.ask_at(&daily("s4", DAY + HOUR), "v2").unwrap();
    assert_eq!(next_day.interval, bucket(DAY, DAY));
}

#[test]
fn coarser_query_granularity_than_the_interval_is_refused_by_name() {
    let mut store = Store::default();
    let coarse = AllocationRequest {
        row: TimestampMillis(0),
        row_bucket: bucket(5, DAY),
        ..hourly("s1", None, 0)
    };
    let refusal = store.ask(&coarse).unwrap_err();
    assert!(matches!(
        refusal,
        AllocationRefusal::CoarserQueryGranularity { .. }
    ));
    assert!(
        refusal
            .to_string()
            .starts_with("coarser query granularity than the interval"),
        "{refusal}"
    );
    // Also when a finer interval is there already.
    store.ask(&hourly("s1", None, 5)).unwrap();
    let daily = AllocationRequest {
        preferred: bucket(0, DAY),
        sequence: SequenceName::new("s2").unwrap(),
        ..coarse
    };
    assert!(matches!(
        store.ask(&daily),
        Err(AllocationRefusal::CoarserQueryGranularity { .. })
    ));
}

#[test]
fn a_silly_granularity_is_refused() {
    let mut store = Store::default();
    let silly = AllocationRequest {
        preferred: bucket(HOUR, HOUR),
        ..hourly("s1", None, 5)
    };
    assert!(matches!(
        store.ask(&silly),
        Err(AllocationRefusal::RowOutside { .. })
    ));
}

#[test]
fn when_every_bucket_is_blocked_the_blocking_interval_is_named() {
    let mut store = Store::default();
    store.ask(&hourly("s1", None, 5)).unwrap();
    let daily = AllocationRequest {
        preferred: bucket(2 * HOUR, DAY),
        finer: vec![],
        ..hourly("s2", None, 2 * HOUR)
    };
    assert_eq!(
        store.ask(&daily),
        Err(AllocationRefusal::NoFreeBucket {
            row: TimestampMillis(2 * HOUR),
            blocking: bucket(0, HOUR)
        })
    );
}

#[test]
fn numbering_goes_on_from_the_highest_ever_given_also_when_nothing_is_used() {
    // The chunk is all that is left of published and dropped segments (D40).
    let chunk = Chunk {
        interval: bucket(0, HOUR),
        version: version("v0"),
        next_number: 7,
    };
    let state = AllocationState {
        answers: vec![],
        chunks: vec![chunk],
    };
    let decision = decide(&state, &hourly("s9", None, 5), &version("v9"));
    let AllocationDecision::New(id) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!((id.version.as_str(), id.partition_num), ("v0", 7));
}

#[test]
fn a_newer_version_hides_what_lies_under_it() {
    let chunks = vec![
        Chunk {
            interval: bucket(0, HOUR),
            version: version("v1"),
            next_number: 4,
        },
        Chunk {
            interval: bucket(HOUR, HOUR),
            version: version("v1"),
            next_number: 2,
        },
        Chunk {
            interval: bucket(0, DAY),
            version: version("v2"),
            next_number: 1,
        },
    ];
    let decision = decide(
        &AllocationState {
            answers: vec![],
            chunks,
        },
        &hourly("s", None, 5),
        &version("v9"),
    );
    let AllocationDecision::New(id) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(
        (id.interval, id.version.as_str(), id.partition_num),
        (bucket(0, DAY), "v2", 1)
    );
}

#[test]
fn by_interval_replicas_that_meet_intervals_in_different_orders_get_the_same_ids() {
    let mut store = Store::default();
    let ask = |store: &mut Store, row| store.ask(&by_interval(hourly("s1", None, row))).unwrap();
    let one: Vec<SegmentId> = [0, HOUR, 2 * HOUR].map(|row| ask(&mut store, row)).into();
    let mut other: Vec<SegmentId> = [2 * HOUR + 60_000, 30_000, HOUR + 59 * 60_000]
        .map(|row| ask(&mut store, row))
        .into();
    other.rotate_left(1);
    assert_eq!(one, other);
    assert_eq!(store.all.len(), 3, "one segment per (sequence, interval)");
}

#[test]
fn numbers_run_out_before_they_wrap() {
    let chunk = Chunk {
        interval: bucket(0, HOUR),
        version: version("v0"),
        next_number: u32::MAX,
    };
    let state = AllocationState {
        answers: vec![],
        chunks: vec![chunk],
    };
    let decision = decide(&state, &hourly("s", None, 5), &version("v1"));
    assert!(matches!(
        decision,
        AllocationDecision::Refused(AllocationRefusal::NoNumberLeft { .. })
    ));
}

/// (sequence, minute of the row, width of the preferred bucket in minutes).
fn wish() -> impl Strategy<Value = (u8, i64, i64)> {
    (
        0u8..4,
        -200i64..200,
        prop_oneof![Just(1i64), Just(10), Just(60), Just(1440)],
    )
}

proptest! {
    #[test]
    fn ids_are_unique_intervals_never_overlap_in_part_and_repeats_agree(wishes in prop::collection::vec(wish(), 1..60)) {
        let mut store = Store::default();
        let mut asked = Vec::new();
        for (sequence, minute, width) in wishes {
            let row = minute * 60_000;
            let finer = [60, 10, 1].into_iter().filter(|finer| *finer < width);
            let request = AllocationRequest {
                preferred: bucket(row, width * 60_000),
                finer: finer.map(|finer| bucket(row, finer * 60_000)).collect(),
                ..by_interval(hourly(&format!("s{sequence}"), None, row))
            };
            // One-minute rows always fit into something.
            let id = store.ask(&request).unwrap();
            prop_assert!(id.interval.encloses(request.row_bucket));
            asked.push((request, id));
        }
        for (request, id) in asked {
            prop_assert_eq!(store.ask_at(&request, "later").unwrap(), id);
        }
        for (index, one) in store.all.iter().enumerate() {
            for other in &store.all[index + 1..] {
                prop_assert_ne!(one, other);
                prop_assert!(one.interval == other.interval || !one.interval.overlaps(other.interval));
            }
        }
    }
}
