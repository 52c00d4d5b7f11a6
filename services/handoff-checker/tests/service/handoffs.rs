//! From the catalog to "served".

use std::time::Duration;

use tidegate_rpc::handoff::v1::{AwaitHandoffRequest, HandoffState};
use tonic::Code;

use crate::world::{World, eventually, id};

const LONG: Duration = Duration::from_secs(25);
const NOW: Duration = Duration::ZERO;

#[tokio::test]
async fn a_question_waits_until_all_segments_are_served() {
    let mut world = World::new().await;
    world.publish(0..3);
    world.state().served.extend([0, 1]);
    eventually(async || world.ask(&[0, 1, 2], NOW).await[..2] == [HandoffState::Served; 2]).await;
    assert_eq!(world.ask(&[2], NOW).await, [HandoffState::Pending]);
    let mut asking = {
        let mut client = world.client.clone();
        tokio::spawn(async move {
            let request = AwaitHandoffRequest {
                segments: vec![id(2), id(0)],
                wait_millis: 25_000,
            };
            client.await_handoff(request).await.unwrap().into_inner()
        })
    };
    assert!(
        tokio::time::timeout(Duration::from_millis(100), &mut asking)
            .await
            .is_err()
    );
    world.state().served.insert(2);
    let answer = asking.await.unwrap();
    assert!(
        answer
            .handoffs
            .iter()
            .all(|handoff| handoff.state() == HandoffState::Served)
    );
    assert!(answer.handoffs[0].served_at_millis >= answer.handoffs[0].since_millis);
}

#[tokio::test]
async fn segments_are_confirmed_without_anybody_asking() {
    let mut world = World::new().await;
    world.state().served.extend(0..5);
    world.publish(0..5);
    eventually(async || {
        let all = world.list(false).await;
        all.len() == 5 && all.iter().all(|handoff| handoff.state() == HandoffState::Served)
    })
    .await;
    assert!(world.list(true).await.is_empty());
    assert!(
        world
            .metrics
            .text()
            .contains("tidegate_handoffs_served_total{data_source=\"wiki\"")
    );
}

#[tokio::test]
async fn a_segment_that_is_not_in_the_catalog_is_unknown_and_found_when_it_comes() {
    let mut world = World::with(&[("handoff.poll_interval", "10s"), ("handoff.max_backoff", "10s")]).await;
    assert_eq!(world.ask(&[7], NOW).await, [HandoffState::UnknownSegment]);
    world.state().served.insert(7);
    world.publish([7]);
    // The question itself makes the checker look, long before it would by itself.
    assert_eq!(world.ask(&[7], LONG).await, [HandoffState::Served]);
}

#[tokio::test]
async fn a_segment_is_asked_for_at_its_final_key_once_it_is_promoted() {
    let mut world = World::new().await;
    world.state().served.insert(0);
    world.publish([0]);
    {
        let mut state = world.state();
        state.catalog[0].promoted = false;
        state.catalog[0].segment.as_mut().unwrap().key = "staging/t/x".into();
    }
    eventually(async || world.state().checks.get(&0).is_some_and(|checks| *checks > 1)).await;
    assert_eq!(world.ask(&[0], NOW).await, [HandoffState::Pending]);
    {
        let mut state = world.state();
        state.catalog[0].promoted = true;
        state.catalog[0].segment.as_mut().unwrap().key = "segments/0".into();
    }
    assert_eq!(world.ask(&[0], LONG).await, [HandoffState::Served]);
    assert_eq!(world.state().keys[&0], "segments/0");
}

#[tokio::test]
async fn a_segment_that_is_not_used_any_more_counts_as_served() {
    let mut world = World::new().await;
    world.publish([0]);
    assert_eq!(
        world.ask(&[0], Duration::from_millis(50)).await,
        [HandoffState::Pending]
    );
    world.state().catalog[0].used = false;
    assert_eq!(world.ask(&[0], LONG).await, [HandoffState::Served]);
}

#[tokio::test]
async fn d11_what_is_pending_is_followed_over_a_restart_and_what_was_served_stays_so() {
    let mut world = World::new().await;
    world.publish(0..4);
    world.state().served.insert(1);
    assert_eq!(world.ask(&[1], LONG).await, [HandoffState::Served]);
    world.stop();
    {
        let mut state = world.state();
        state.served = [0, 2, 3].into();
        state.checks.clear();
    }
    world.start().await;
    assert_eq!(world.ask(&[0, 1, 2, 3], LONG).await, [HandoffState::Served; 4]);
    assert_eq!(
        world.state().checks.get(&1),
        None,
        "a served one is not asked for again"
    );
}

#[tokio::test]
async fn a_publisher_that_is_away_delays_and_loses_nothing() {
    let mut world = World::new().await;
    world.state().publisher_is_away = true;
    world.state().served.extend([0, 1]);
    world.publish(0..2);
    assert_eq!(
        world.ask(&[0], Duration::from_millis(50)).await,
        [HandoffState::UnknownSegment]
    );
    world.state().publisher_is_away = false;
    assert_eq!(world.ask(&[0, 1], LONG).await, [HandoffState::Served; 2]);
}

#[tokio::test]
async fn a_segment_whose_check_hangs_does_not_delay_the_others() {
    let mut world = World::new().await;
    world.state().stuck.extend(0..5);
    world.state().served.extend(0..40);
    world.publish(0..40);
    let others: Vec<u32> = (5..40).collect();
    assert_eq!(world.ask(&others, LONG).await, [HandoffState::Served; 35]);
    assert_eq!(world.ask(&[0], NOW).await, [HandoffState::Pending]);
}

#[tokio::test]
async fn i9_a_segment_that_takes_long_is_an_alert_and_still_served_later() {
    let mut world = World::with(&[("handoff.alert_after", "20ms")]).await;
    world.publish([0]);
    eventually(async || {
        world
            .metrics
            .text()
            .contains("tidegate_handoff_alerts_total{data_source=\"wiki\"")
    })
    .await;
    assert_eq!(world.ask(&[0], NOW).await, [HandoffState::Pending]);
    world.state().served.insert(0);
    assert_eq!(world.ask(&[0], LONG).await, [HandoffState::Served]);
}

#[tokio::test]
async fn questions_that_cannot_be_answered_are_refused_by_field() {
    let mut world = World::new().await;
    let many = AwaitHandoffRequest {
        segments: (0..1001).map(id).collect(),
        wait_millis: 0,
    };
    let without = AwaitHandoffRequest {
        segments: vec![Default::default()],
        wait_millis: 0,
    };
    for request in [many, without] {
        let error = world.client.await_handoff(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    let request = tidegate_rpc::handoff::v1::ListHandoffsRequest {
        page_token: "x".into(),
        ..Default::default()
    };
    let error = world.client.list_handoffs(request).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}
