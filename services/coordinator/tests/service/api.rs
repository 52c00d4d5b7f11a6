//! Answers and refusals of the public API.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::status::{field_violations, retry_after};
use tonic::Code;

use crate::fakes::{SECRET, World, spec};

#[tokio::test]
async fn a_bad_spec_is_refused_with_every_error_at_its_place_and_validate_says_the_same() {
    let world = World::start(&[(0, 1)]).await;
    let bad = spec(r#""taskCount":0,"replicas":"many","nonsense":1"#);
    let refused = world.submit(&bad).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let fields = field_violations(&refused);
    let paths: Vec<&str> = fields.iter().map(|(path, _)| path.as_str()).collect();
    for wanted in ["taskCount", "replicas", "nonsense"] {
        assert!(
            paths.iter().any(|path| path.ends_with(wanted)),
            "{wanted} in {paths:?}"
        );
    }
    let request = api::ValidateRequest { spec_json: bad };
    let told = world.api.clone().validate(request).await.unwrap().into_inner();
    let told: Vec<(String, String)> = told
        .errors
        .into_iter()
        .map(|issue| (issue.path, issue.message))
        .collect();
    assert_eq!(told, fields);
    let request = api::ValidateRequest { spec_json: spec("") };
    assert!(
        world
            .api
            .clone()
            .validate(request)
            .await
            .unwrap()
            .into_inner()
            .errors
            .is_empty()
    );
    let list = world
        .api
        .clone()
        .list(api::ListRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(list.supervisors.is_empty(), "validating stores nothing");
}

#[tokio::test]
async fn consumer_properties_that_the_client_refuses_are_errors_of_the_spec() {
    let world = World::start(&[(0, 1)]).await;
    let bad = spec("").replace(
        r#""bootstrap.servers":"h:9092""#,
        r#""bootstrap.servers":"h:9092","security.protocol":"MAGIC""#,
    );
    let fields = field_violations(&world.submit(&bad).await.unwrap_err());
    assert!(
        fields
            .iter()
            .any(|(path, _)| path.contains("consumerProperties") && path.contains("security.protocol")),
        "{fields:?}"
    );
}

#[tokio::test]
async fn errors_of_consumer_properties_are_told_beside_all_others_and_where_the_document_has_them() {
    let world = World::start(&[(0, 1)]).await;
    let wrapped = spec(r#""taskCount":0"#).replace(
        "\"bootstrap.servers\"",
        "\"interceptor.classes\":\"x\",\"bootstrap.servers\"",
    );
    let bare = {
        let document: serde_json::Value = serde_json::from_str(&wrapped).unwrap();
        document["spec"].to_string()
    };
    for (document, prefix) in [(&wrapped, "spec."), (&bare, "")] {
        let fields = field_violations(&world.submit(document).await.unwrap_err());
        let paths: BTreeSet<&str> = fields.iter().map(|(path, _)| path.as_str()).collect();
        for wanted in [
            "ioConfig.taskCount",
            "ioConfig.consumerProperties.interceptor.classes",
        ] {
            assert!(
                paths.contains(format!("{prefix}{wanted}").as_str()),
                "{wanted} in {paths:?}"
            );
        }
        assert_eq!(paths.len(), fields.len(), "each once: {fields:?}");
        let request = api::ValidateRequest {
            spec_json: document.clone(),
        };
        let told = world.api.clone().validate(request).await.unwrap().into_inner();
        assert_eq!(told.errors.len(), fields.len());
    }
}

#[tokio::test]
async fn b68_a_login_line_that_is_masked_or_a_reference_is_no_error() {
    let world = World::start(&[(0, 1)]).await;
    let login = format!(
        r#"org.apache.kafka.common.security.plain.PlainLoginModule required username=\"u\" password=\"{SECRET}\";"#
    );
    let with = |value: &str| {
        spec("").replace(
            &format!(r#""sasl.password":"{SECRET}""#),
            &format!(r#""sasl.jaas.config":{value}"#),
        )
    };
    world.submit(&with(&format!("\"{login}\""))).await.unwrap();
    let request = api::GetRequest {
        supervisor_id: "wiki".into(),
    };
    let shown = world.api.clone().get(request).await.unwrap().into_inner();
    assert!(!shown.spec_json.contains(SECRET), "{}", shown.spec_json);
    let request = api::ValidateRequest {
        spec_json: shown.spec_json.clone(),
    };
    let told = world.api.clone().validate(request).await.unwrap().into_inner();
    assert_eq!(told.errors, [], "what was shown is valid");
    assert!(!world.submit(&shown.spec_json).await.unwrap().changed);
    // Nothing stored stands behind this mask: validating says so as submitting does.
    let other = shown.spec_json.replace("\"wiki\"", "\"other\"");
    let fields = field_violations(&world.submit(&other).await.unwrap_err());
    assert_eq!(fields.len(), 1, "{fields:?}");
    let request = api::ValidateRequest { spec_json: other };
    let told = world.api.clone().validate(request).await.unwrap().into_inner();
    assert_eq!((told.errors.len(), &told.errors[0].path), (1, &fields[0].0));
    let reference = with(r#"{"type":"environment","variable":"LOGIN_OF_WIKI"}"#);
    assert!(world.submit(&reference).await.unwrap().changed);
}

#[tokio::test]
async fn b48_bad_specs_leave_a_running_supervisor_as_it_is() {
    let world = World::start(&[(0, 100)]).await;
    let first = world.submit(&spec("")).await.unwrap();
    world
        .until("a task reads", |status| {
            status.reading.len() == 1 && world.held().len() == 1
        })
        .await;
    let held = world.held();
    let good = spec("");
    let bad = [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        good.replace("\"kafka\"", "\"kinesis\""),
        good.replace(r#""dataSource":"wiki""#, r#""dataSource":"""#),
        good.replace(r#""dataSource":"wiki""#, r#""dataSource":"a/b""#),
        good.replace(r#""topic":"edits""#, r#""topic":"${topic}""#),
        good.replace(r#""period":"PT1S""#, r#""period":"soon""#),
        spec(r#""taskDuration":"PT0S""#),
        spec(r#""replicas":-1"#),
        spec(r#""completionTimeout":"P1M1M""#),
    ];
    for bad in bad {
        let refused = world.submit(&bad).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{bad}: {refused}");
    }
    let again = world.submit(&good).await.unwrap();
    assert_eq!((again.version, again.changed), (first.version, false));
    assert_eq!(world.held(), held);
}

#[tokio::test]
async fn b68_a_secret_is_shown_nowhere_and_a_masked_spec_can_be_submitted_again() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    world
        .until("a task reads", |status| {
            status.reading.len() == 1 && world.held().len() == 1
        })
        .await;
    let request = api::GetRequest {
        supervisor_id: "wiki".into(),
    };
    let shown = world.api.clone().get(request).await.unwrap().into_inner();
    assert!(!shown.spec_json.contains(SECRET), "{}", shown.spec_json);
    let history = world.history().await;
    assert!(!format!("{history:?}").contains(SECRET));
    assert!(!format!("{:?}", world.status().await).contains(SECRET));
    let again = world.submit(&shown.spec_json).await.unwrap();
    assert_eq!((again.version, again.changed), (shown.version, false));
    let given = world.with_task(&world.held()[0], |task| task.assignment.spec_json.clone());
    assert!(given.contains(SECRET), "the task needs it");
    // Masked without a stored value to put in its place.
    let other = shown.spec_json.replace("\"wiki\"", "\"other\"");
    let fields = field_violations(&world.submit(&other).await.unwrap_err());
    assert!(
        fields.iter().any(|(path, _)| path.contains("sasl.password")),
        "{fields:?}"
    );
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_now_have_codes_of_their_own() {
    let world = World::start(&[(0, 1)]).await;
    let suspend = |id: &str| api::SuspendRequest {
        supervisor_id: id.to_owned(),
    };
    let mut client = world.api.clone();
    assert_eq!(
        client.suspend(suspend("nobody")).await.unwrap_err().code(),
        Code::NotFound
    );
    let bad_name = client.suspend(suspend("a/b")).await.unwrap_err();
    assert_eq!(
        (bad_name.code(), field_violations(&bad_name)[0].0.as_str()),
        (Code::InvalidArgument, "supervisor_id")
    );
    world.submit(&spec("")).await.unwrap();
    let terminate = api::TerminateRequest {
        supervisor_id: "wiki".into(),
        now: true,
        forget_offsets: false,
    };
    client.terminate(terminate).await.unwrap();
    let ended = |status: &api::StatusResponse| {
        status.supervisor.as_ref().unwrap().state() == api::SupervisorState::Terminated
    };
    world.until("it is terminated", ended).await;
    let refused = client.suspend(suspend("wiki")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let reset = api::ResetRequest {
        supervisor_id: "wiki".into(),
        partitions: vec![9],
        ..Default::default()
    };
    let refused = client.reset(reset).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    // A terminated one is stored and can be submitted anew.
    assert!(world.submit(&spec("")).await.unwrap().changed);
}

#[tokio::test]
async fn a_coordinator_that_ends_asks_to_come_back_later() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    world.coordinator.stop();
    let refused = loop {
        let request = api::SuspendRequest {
            supervisor_id: "wiki".into(),
        };
        if let Err(refused) = world.api.clone().suspend(request).await {
            break refused;
        }
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(retry_after(&refused).is_some());
}

#[tokio::test]
async fn a_publisher_that_is_away_is_said_with_when_to_come_again_and_status_goes_on() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    world
        .until("a task reads", |status| status.reading.len() == 1)
        .await;
    world.publisher.is_away.store(true, Ordering::SeqCst);
    let request = |supervisor: &str| api::ListSegmentsRequest {
        supervisor_id: supervisor.into(),
        ..Default::default()
    };
    let refused = world
        .api
        .clone()
        .list_segments(request("wiki"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(retry_after(&refused).is_some(), "{refused}");
    let refused = world
        .api
        .clone()
        .list_segments(request("nobody"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    assert_eq!(world.status().await.reading.len(), 1);
}

#[tokio::test]
async fn a_submit_whose_caller_went_away_leaves_one_supervisor_and_not_two() {
    let world = World::start(&[(0, 1)]).await;
    world.store.hold();
    let first = tokio::time::timeout(Duration::from_millis(200), world.submit(&spec(""))).await;
    assert!(first.is_err(), "the store holds it");
    world.store.go_on();
    let second = world.submit(&spec("")).await.unwrap();
    assert_eq!((second.version, second.changed), (1, false));
    world
        .until("a task reads", |status| status.reading.len() == 1)
        .await;
    let submitted = world.history().await;
    assert_eq!(submitted.len(), 1, "{submitted:?}");
    let request = api::SuspendRequest {
        supervisor_id: "wiki".into(),
    };
    world.api.clone().suspend(request).await.unwrap();
    world
        .until("nobody else runs tasks", |status| {
            status.reading.is_empty() && status.publishing.is_empty() && world.held().is_empty()
        })
        .await;
}

#[tokio::test]
async fn a_broker_that_does_not_answer_holds_nobody_up() {
    let world = World::start(&[(0, 1)]).await;
    world.broker.is_silent.store(true, Ordering::SeqCst);
    let answered = async {
        world.submit(&spec("")).await.unwrap();
        let other = spec("").replace("\"wiki\"", "\"other\"");
        world.submit(&other).await.unwrap();
        let request = api::SuspendRequest {
            supervisor_id: "wiki".into(),
        };
        world.api.clone().suspend(request).await.unwrap()
    };
    let status = tokio::time::timeout(Duration::from_secs(10), answered)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        status.supervisor.unwrap().state(),
        api::SupervisorState::Suspended
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_a_command_shows_what_it_did() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    for _ in 0..100 {
        let request = api::SuspendRequest {
            supervisor_id: "wiki".into(),
        };
        let status = world.api.clone().suspend(request).await.unwrap().into_inner();
        assert_eq!(
            status.supervisor.unwrap().state(),
            api::SupervisorState::Suspended
        );
        let request = api::ResumeRequest {
            supervisor_id: "wiki".into(),
        };
        let status = world.api.clone().resume(request).await.unwrap().into_inner();
        assert_ne!(
            status.supervisor.unwrap().state(),
            api::SupervisorState::Suspended
        );
    }
}

#[tokio::test]
async fn lists_are_paged_and_complete() {
    let world = World::start(&[(0, 1), (0, 1), (0, 1)]).await;
    world.submit(&spec(r#""taskCount":3"#)).await.unwrap();
    world
        .until("three tasks", |status| {
            status.reading.len() == 3 && world.held().len() == 3
        })
        .await;
    let mut seen = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = api::ListTasksRequest {
            page_size: 2,
            page_token,
            ..Default::default()
        };
        let page = world.api.clone().list_tasks(request).await.unwrap().into_inner();
        assert!(page.tasks.len() <= 2);
        seen.extend(page.tasks.into_iter().map(|task| task.status.unwrap().task_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, world.held());
    let request = api::ListTasksRequest {
        page_token: "nonsense".into(),
        ..Default::default()
    };
    assert_eq!(
        world.api.clone().list_tasks(request).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let runners = world
        .api
        .clone()
        .list_runners(api::ListRunnersRequest {})
        .await
        .unwrap()
        .into_inner()
        .runners;
    let runners: Vec<_> = runners
        .iter()
        .map(|runner| (runner.runner_id.as_str(), runner.slots, runner.available))
        .collect();
    assert_eq!(runners, [("r1", 4, true), ("r2", 4, true)]);
}

#[tokio::test]
async fn history_tells_versions_and_what_was_done_newest_first() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    let second = world.submit(&spec(r#""replicas":2"#)).await.unwrap();
    assert_eq!((second.version, second.changed), (2, true));
    world
        .api
        .clone()
        .suspend(api::SuspendRequest {
            supervisor_id: "wiki".into(),
        })
        .await
        .unwrap();
    let history = world.history().await;
    assert!(
        history
            .windows(2)
            .all(|pair| pair[0].at_millis >= pair[1].at_millis)
    );
    let versions: Vec<u32> = history
        .iter()
        .filter(|entry| !entry.spec_json.is_empty())
        .map(|entry| entry.version)
        .collect();
    assert_eq!(versions, [2, 1]);
    assert!(history[0].what.contains("suspend"), "{history:?}");
}
