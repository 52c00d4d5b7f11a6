//! The other calls, their errors, and the service on a socket.

use std::time::Duration;

use tidegate_publisher::run;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::status::field_violations;
use tidegate_rpc::types::v1 as types;
use tidegate_rpc::{Transport, clients, health};
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::world::{Group, World, at, config, publish, stream};

fn fields(status: &Status) -> Vec<String> {
    field_violations(status)
        .into_iter()
        .map(|(field, _)| field)
        .collect()
}

#[tokio::test]
async fn what_a_request_lacks_is_named() {
    let mut world = World::new().await;
    let bad = wire::InitializeOffsetsRequest {
        supervisor_id: "wiki".into(),
        ..Default::default()
    };
    let status = world.client.initialize_offsets(bad).await.unwrap_err();
    assert_eq!(
        (status.code(), fields(&status)),
        (Code::InvalidArgument, vec!["start".to_owned()])
    );

    let open = wire::InitializeOffsetsRequest {
        supervisor_id: "wiki".into(),
        stream: Some(stream()),
        start: Some((&at([(0, i64::MAX)])).into()),
        coordinator_epoch: 1,
    };
    assert_eq!(
        world.client.initialize_offsets(open).await.unwrap_err().code(),
        Code::InvalidArgument
    );

    let group = Group::new("a", 2, 5);
    for mode in [0, 77] {
        let request = wire::RegisterGroupRequest {
            mode,
            ..group.registration()
        };
        let status = world.client.register_group(request).await.unwrap_err();
        assert_eq!(
            (status.code(), fields(&status)),
            (Code::InvalidArgument, vec!["mode".to_owned()]),
            "{mode}"
        );
    }
    let reset = wire::ResetOffsetsRequest {
        supervisor_id: "wiki".into(),
        topic: "wiki".into(),
        ..Default::default()
    };
    let status = world.client.reset_offsets(reset).await.unwrap_err();
    assert_eq!(fields(&status), vec!["request_key".to_owned()]);
    let token = wire::ListSegmentsRequest {
        page_token: "x".into(),
        ..Default::default()
    };
    let status = world.client.list_segments(token).await.unwrap_err();
    assert_eq!(fields(&status), vec!["page_token".to_owned()]);
}

#[tokio::test]
async fn a_malformed_publish_is_refused_with_all_its_faults() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let mut wish = group.wish(0, vec![]);
    wish.mode = 0;
    wish.sequences[0].end = Some((&at([(0, 1)])).into());
    let status = world.client.publish(wish).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        fields(&status),
        vec!["mode".to_owned(), "sequences[0].end".to_owned()]
    );

    // A key that is not staged could be somebody else's final one.
    let id = group.allocate(&mut world).await;
    let staged = world.stage("a-task-0", "a", 3);
    let mut segment = group.segment(id, &staged);
    segment.key = "segments/wiki/x.parquet".into();
    let status = world
        .client
        .publish(group.wish(0, vec![segment]))
        .await
        .unwrap_err();
    assert_eq!(fields(&status), vec!["segments.key".to_owned()]);
    assert_eq!(world.committed().await, at([(0, 2)]));
}

#[tokio::test]
async fn right_request_wrong_moment_is_a_failed_precondition() {
    let mut world = World::new().await;
    let unknown = wire::GetCommittedOffsetsRequest {
        supervisor_id: "wiki".into(),
        topic: String::new(),
    };
    assert_eq!(
        world
            .client
            .get_committed_offsets(unknown)
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    let newer = wire::RegisterGroupRequest {
        coordinator_epoch: 9,
        ..group.registration()
    };
    world.client.register_group(newer).await.unwrap();
    let status = world
        .client
        .register_group(group.registration())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(
        status.message().contains("another coordinator"),
        "{}",
        status.message()
    );
    let zombie = wire::AllocateSegmentRequest {
        assignment_token: "zombie".into(),
        ..group.allocation()
    };
    assert_eq!(
        world.client.allocate_segment(zombie).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    let coarse = wire::AllocateSegmentRequest {
        row_bucket: Some(types::Interval {
            start_millis: 0,
            end_millis: 86_400_000,
        }),
        ..group.allocation()
    };
    let status = world.client.allocate_segment(coarse).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(
        status
            .message()
            .starts_with("coarser query granularity than the interval"),
        "{}",
        status.message()
    );
}

#[tokio::test]
async fn a_reset_fences_the_publish_of_before() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, _) = group.ready(&mut world, 0).await;
    let reset = wire::ResetOffsetsRequest {
        supervisor_id: "wiki".into(),
        topic: "wiki".into(),
        new_offsets: Some((&at([(0, 2)])).into()),
        expected: Some((&at([(0, 2)])).into()),
        who: "me".into(),
        why: "test".into(),
        request_key: "k".into(),
        coordinator_epoch: 1,
        ..Default::default()
    };
    let held = world
        .client
        .reset_offsets(reset.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(held.generation, 1);
    assert_eq!(
        world.client.reset_offsets(reset).await.unwrap().into_inner(),
        held
    );
    let (outcome, response) = publish(&mut world, &wish).await;
    assert_eq!(outcome, wire::PublishOutcome::Fenced, "{}", response.detail);
    assert_eq!((world.catalog().await.len(), world.glob().len()), (0, 0));
}

#[tokio::test]
async fn segments_are_listed_page_by_page() {
    let mut world = World::new().await;
    world.initialize(at([(0, 0)])).await;
    for round in 0..5 {
        let group = Group::new(&format!("g{round}"), round, round + 1);
        group.register(&mut world).await;
        let (wish, _) = group.ready(&mut world, 0).await;
        assert_eq!(
            publish(&mut world, &wish).await.0,
            wire::PublishOutcome::Published
        );
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let request = wire::ListSegmentsRequest {
            page_size: 2,
            page_token: token,
            ..Default::default()
        };
        let page = world.client.list_segments(request).await.unwrap().into_inner();
        seen.push(
            page.segments
                .iter()
                .map(|segment| segment.ordinal)
                .collect::<Vec<_>>(),
        );
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, vec![vec![1, 2], vec![3, 4], vec![5]]);
    // One who has kept an ordinal goes on behind it.
    let request = wire::ListSegmentsRequest {
        page_token: "4".into(),
        ..Default::default()
    };
    assert_eq!(
        world
            .client
            .list_segments(request)
            .await
            .unwrap()
            .into_inner()
            .segments
            .len(),
        1
    );
    let other = wire::ListSegmentsRequest {
        data_source: "else".into(),
        ..Default::default()
    };
    assert_eq!(
        world
            .client
            .list_segments(other)
            .await
            .unwrap()
            .into_inner()
            .segments
            .len(),
        0
    );
}

#[tokio::test]
async fn the_service_answers_on_a_socket_and_ends_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let metrics = Metrics::new("publisher");
    let served = tokio::spawn(run(
        config(folder.path(), &[]),
        metrics.clone(),
        listener,
        shutdown.clone(),
    ));
    let transport = Transport::connect(&address).unwrap();
    assert!(health::check(transport.clone()).await.unwrap());
    let mut client = clients::publisher(transport);
    let request = wire::InitializeOffsetsRequest {
        supervisor_id: "wiki".into(),
        stream: Some(stream()),
        start: Some((&at([(0, 2)])).into()),
        coordinator_epoch: 1,
    };
    assert_eq!(
        client
            .initialize_offsets(request)
            .await
            .unwrap()
            .into_inner()
            .generation,
        0
    );
    let group = Group::new("a", 2, 5);
    client.register_group(group.registration()).await.unwrap();
    let response = client.publish(group.wish(0, vec![])).await.unwrap().into_inner();
    assert_eq!(response.outcome(), wire::PublishOutcome::Published);
    let text = metrics.text();
    let sample = r#"tidegate_publishes_total{outcome="published",service="publisher",supervisor="wiki"} 1"#;
    assert!(text.contains(sample), "{text}");
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), served)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        tokio::net::TcpStream::connect(address.trim_start_matches("http://"))
            .await
            .is_err()
    );
}
