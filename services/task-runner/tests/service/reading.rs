//! From records to rows: counts, bounds, and standing still.

use serde_json::{Value, json};
use tidegate_rpc::task_runner::v1::{TaskPhase, TaskState};

use crate::world::{World, assignment, offsets, once};

#[tokio::test(flavor = "multi_thread")]
async fn every_record_of_all_partitions_is_published_once_with_its_offsets() {
    let mut world = World::new(2).await;
    world.produce_events(0, 0..5000);
    world.produce_events(1, 5000..7000);
    let spec = world.spec(&[]);
    let status = world.assign(assignment("t", spec, &[(0, 0), (1, 0)])).await;
    assert_eq!(status.task_id, "t");
    world.until_read("t", &[(0, 5000), (1, 2000)]).await;
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(0..7000));
    let sequences: Vec<_> = publish
        .sequences
        .iter()
        .map(|sequence| (sequence.start.clone().unwrap(), sequence.end.clone().unwrap()))
        .collect();
    let wanted = [
        (offsets(&[(0, 0)]), offsets(&[(0, 5000)])),
        (offsets(&[(1, 0)]), offsets(&[(1, 2000)])),
    ];
    assert_eq!(sequences, wanted);
    assert_eq!(publish.segments.len(), 2, "one per sequence and day");
    assert_eq!(publish.segments[0].first_offsets, Some(offsets(&[(0, 0)])));
    assert_eq!(publish.segments[0].end_offsets, Some(offsets(&[(0, 5000)])));
    let counts = publish.counts.unwrap();
    assert_eq!((counts.accepted, counts.stored), (7000, 7000));
    let status = world.status("t").await;
    assert_eq!((status.published.len(), status.handed_off), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_b05_each_kind_of_record_is_counted_as_what_it_is_and_the_first_bad_one_is_shown() {
    let mut world = World::new(1).await;
    let values: [Option<&str>; 8] = [
        Some(r#"{"time": 1, "n": 1}"#),
        None,
        Some(""),
        Some("{"),
        Some(r#"{"time": "never", "n": 3}"#),
        Some(r#"{"time": 2, "n": "many"}"#),
        Some("  null "),
        Some(r#"{"time": 3, "n": 2}"#),
    ];
    world.produce(0, values);
    let spec = world.spec(&[("/tuningConfig/maxSavedParseExceptions", json!(0))]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 8)]).await;
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(1..3));
    let counts = publish.counts.unwrap();
    let found = [
        counts.accepted,
        counts.tombstones,
        counts.empty,
        counts.unparseable,
    ];
    assert_eq!(found, [2, 1, 2, 3]);
    let status = world.status("t").await;
    assert_eq!(status.parse_errors.len(), 1, "{:?}", status.parse_errors);
    assert_eq!(
        (status.parse_errors[0].partition, status.parse_errors[0].offset),
        (0, 3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn more_bad_records_than_the_budget_end_the_task_and_say_where() {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..3);
    world.produce(0, ["x", "y", "z"].map(Some));
    let spec = world.spec(&[("/tuningConfig/maxParseExceptions", json!(2))]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    let status = world.until_state("t", TaskState::Failed).await;
    assert!(
        status.reason.contains("maxParseExceptions is 2"),
        "{}",
        status.reason
    );
    assert!(
        status.reason.contains("offset 5 of partition 0"),
        "{}",
        status.reason
    );
    assert!(world.peers().publishes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_persists_and_full_segments_hold_the_same_rows() {
    let mut world = World::with(1, &[("runner.memory_limit", "64MiB")]).await;
    world.produce_events(0, 0..20_000);
    let spec = world.spec(&[
        ("/tuningConfig/maxRowsInMemory", json!(1000)),
        ("/tuningConfig/maxRowsPerSegment", json!(3000)),
        ("/tuningConfig/indexSpec", Value::Null),
    ]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 20_000)]).await;
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(0..20_000));
    let rows: Vec<u64> = publish
        .segments
        .iter()
        .map(|segment| segment.input_rows)
        .collect();
    assert_eq!(rows, [3000, 3000, 3000, 3000, 3000, 3000, 2000]);
    let numbers: Vec<u32> = publish
        .segments
        .iter()
        .map(|segment| segment.id.as_ref().unwrap().partition_num)
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_for_a_segment_stands_still_at_once_and_loses_no_record() {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..100);
    world.peers().publisher_is_away = true;
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    let status = world
        .until("t", |status| status.reason.contains("waiting for a segment"))
        .await;
    assert_eq!(status.state(), TaskState::Reading);
    assert_eq!(world.pause("t").await, offsets(&[(0, 0)]));
    world.peers().publisher_is_away = false;
    let request = tidegate_rpc::task_runner::v1::ResumeTaskRequest {
        task_id: "t".into(),
        coordinator_epoch: 1,
    };
    world.client.resume_task(request).await.unwrap();
    world.until_read("t", &[(0, 100)]).await;
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(0..100));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_behind_the_end_are_not_read_and_an_end_that_is_not_written_yet_is_waited_for() {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..100);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 100)]).await;
    world.pause("t").await;
    world.set_end("t", offsets(&[(0, 150)])).await;
    let status = world.status("t").await;
    assert_eq!(
        (status.state(), status.phase()),
        (TaskState::Finishing, TaskPhase::Reading)
    );
    world.produce_events(0, 100..300);
    world.until_state("t", TaskState::Published).await;
    let publish = world.last_publish();
    assert_eq!(world.numbers(&publish), once(0..150));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_without_rows_publishes_its_offsets_only() {
    let mut world = World::new(1).await;
    world.produce(0, [None::<&str>, None, None]);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 3)]).await;
    let publish = world.finish("t").await;
    assert!(publish.segments.is_empty());
    assert_eq!(publish.sequences[0].end, Some(offsets(&[(0, 3)])));
    assert_eq!(publish.counts.unwrap().tombstones, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_a_full_disk_stops_reading_and_not_the_end_of_the_task() {
    let mut world = World::with(1, &[("runner.disk_limit", "256KiB")]).await;
    let noise = |n: i64| {
        let text = (0..40)
            .map(|part| ((n + 1) * 7_919 * (part + 3)).to_string())
            .collect::<String>();
        Some(json!({"time": n, "page": text, "n": n}).to_string())
    };
    world.produce(0, (0..9_000).map(noise));
    let spec = world.spec(&[("/tuningConfig/maxRowsInMemory", json!(500))]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    let status = world
        .until("t", |status| status.reason.contains("room on the disk"))
        .await;
    assert_eq!(status.state(), TaskState::Reading);
    let end = world.pause("t").await;
    let next = end.offsets[0].offset;
    assert!((1..9_000).contains(&next), "it stopped at {next}");
    world.set_end("t", end).await;
    world.until_state("t", TaskState::Published).await;
    assert_eq!(world.numbers(&world.last_publish()), once(0..next));
}
