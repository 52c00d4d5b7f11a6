//! The binary against a coordinator that answers as its protocol says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_rpc::coordinator::v1::supervisor_service_server::SupervisorService;
use tidegate_rpc::coordinator::v1::{self as api, SupervisorState, SupervisorSummary};
use tidegate_rpc::publisher::v1 as publisher;
use tidegate_rpc::status::RpcError;
use tidegate_rpc::types::v1::{Interval, Segment, SegmentId};
use tonic::{Request, Response, Status};

/// Answers from a script and remembers what it was asked.
#[derive(Default)]
struct Scripted {
    submitted: Mutex<Vec<String>>,
    resets: Mutex<Vec<api::ResetRequest>>,
}

fn summary(state: i32) -> SupervisorSummary {
    SupervisorSummary {
        supervisor_id: "wiki".into(),
        data_source: "wiki".into(),
        state,
        version: 3,
        topic: "edits".into(),
    }
}

fn status(state: i32) -> api::StatusResponse {
    api::StatusResponse {
        supervisor: Some(summary(state)),
        ..api::StatusResponse::default()
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl SupervisorService for Scripted {
    async fn submit(&self, request: Request<api::SubmitRequest>) -> Answer<api::SubmitResponse> {
        let spec = request.into_inner().spec_json;
        self.submitted.lock().unwrap().push(spec.clone());
        if spec.contains("bad") {
            let fields = vec![(
                "spec.ioConfig.taskCount".to_owned(),
                "must be at least 1".to_owned(),
            )];
            return Err(RpcError::InvalidArgument("the spec has 1 error".into(), fields).into());
        }
        let answer = api::SubmitResponse {
            supervisor_id: "wiki".into(),
            version: 3,
            changed: true,
            ..api::SubmitResponse::default()
        };
        Ok(Response::new(answer))
    }
    async fn validate(&self, _: Request<api::ValidateRequest>) -> Answer<api::ValidateResponse> {
        let error = api::SpecIssue {
            path: "spec.x".into(),
            message: "unknown".into(),
            line: 2,
            column: 5,
        };
        Ok(Response::new(api::ValidateResponse {
            errors: vec![error],
            warnings: vec![],
        }))
    }
    async fn get(&self, _: Request<api::GetRequest>) -> Answer<api::GetResponse> {
        Err(RpcError::NotFound("no supervisor \"gone\"; tidegate supervisor list shows them".into()).into())
    }
    async fn list(&self, _: Request<api::ListRequest>) -> Answer<api::ListResponse> {
        let supervisors = vec![summary(SupervisorState::Running as i32), summary(99)];
        Ok(Response::new(api::ListResponse { supervisors }))
    }
    async fn status(&self, _: Request<api::StatusRequest>) -> Answer<api::StatusResponse> {
        Ok(Response::new(status(SupervisorState::Running as i32)))
    }
    async fn suspend(&self, _: Request<api::SuspendRequest>) -> Answer<api::StatusResponse> {
        Ok(Response::new(status(SupervisorState::Suspended as i32)))
    }
    async fn resume(&self, _: Request<api::ResumeRequest>) -> Answer<api::StatusResponse> {
        Err(RpcError::Unavailable("starting".into(), Duration::from_secs(2)).into())
    }
    async fn terminate(&self, _: Request<api::TerminateRequest>) -> Answer<api::StatusResponse> {
        Ok(Response::new(status(SupervisorState::Terminated as i32)))
    }
    async fn reset(&self, request: Request<api::ResetRequest>) -> Answer<api::StatusResponse> {
        self.resets.lock().unwrap().push(request.into_inner());
        Ok(Response::new(status(SupervisorState::Running as i32)))
    }
    async fn plan_reset(&self, request: Request<api::ResetRequest>) -> Answer<api::PlanResetResponse> {
        let request = request.into_inner();
        if request.supervisor_id == "old" {
            return Err(Status::unimplemented("a coordinator of 0.1.0"));
        }
        let one = |(partition, skipped, read_again)| api::PartitionReset {
            partition,
            from: (partition == 0).then_some(1_500),
            to: 12_000,
            skipped,
            read_again,
        };
        let partitions = vec![one((0, 10_500, 0)), one((1, 0, 250))];
        Ok(Response::new(api::PlanResetResponse { partitions }))
    }
    async fn checkpoint(&self, request: Request<api::CheckpointRequest>) -> Answer<api::CheckpointResponse> {
        let request = request.into_inner();
        let one = |(group_id, closed)| api::GroupCheckpoint {
            group_id,
            sequence_id: request.wait as u32,
            closed,
        };
        let groups = request
            .group_ids
            .iter()
            .cloned()
            .zip([true, false])
            .map(one)
            .collect();
        Ok(Response::new(api::CheckpointResponse { groups }))
    }
    async fn history(&self, _: Request<api::HistoryRequest>) -> Answer<api::HistoryResponse> {
        Ok(Response::new(api::HistoryResponse::default()))
    }
    async fn list_tasks(&self, _: Request<api::ListTasksRequest>) -> Answer<api::ListTasksResponse> {
        Ok(Response::new(api::ListTasksResponse::default()))
    }
    async fn verify(&self, request: Request<publisher::VerifyRequest>) -> Answer<publisher::VerifyResponse> {
        let request = request.into_inner();
        assert!(request.deep);
        if request.data_source == "none" {
            return Err(Status::not_found(
                "no segment of data source none was ever published",
            ));
        }
        let first = publisher::VerifyResponse {
            coverage: vec![publisher::PartitionCoverage {
                supervisor_id: "wiki".into(),
                topic: "edits".into(),
                partition: 3,
                start: 10,
                end: 1_210,
                ranges: 4,
                committed: 1_210,
                ..Default::default()
            }],
            publishes: 4,
            next_page_token: "0".into(),
            ..Default::default()
        };
        let finding = publisher::VerifyFinding {
            fault: publisher::VerifyFault::Object.into(),
            supervisor_id: "wiki".into(),
            subject: "wiki_1".into(),
            detail: "object a/b is not there".into(),
        };
        Ok(Response::new(match request.page_token.as_str() {
            "" => first,
            "0" => publisher::VerifyResponse {
                segments: 2,
                rows: 1_000,
                bytes_read: 2_048,
                next_page_token: "7".into(),
                ..Default::default()
            },
            _ => publisher::VerifyResponse {
                findings: (request.data_source == "bad")
                    .then_some(finding)
                    .into_iter()
                    .collect(),
                segments: 1,
                rows: 200,
                bytes_read: 52,
                ..Default::default()
            },
        }))
    }
    async fn list_segments(
        &self,
        request: Request<api::ListSegmentsRequest>,
    ) -> Answer<api::ListSegmentsResponse> {
        // Two pages.
        let first = request.into_inner().page_token.is_empty();
        let id = SegmentId {
            data_source: "wiki".into(),
            interval: Some(Interval {
                start_millis: 0,
                end_millis: 3_600_000,
            }),
            version: "v".into(),
            partition_num: u32::from(!first),
        };
        let segment = Segment {
            id: Some(id),
            rows: 9_007_199_254_740_993,
            ..Segment::default()
        };
        let segments = vec![api::SegmentInfo {
            segment: Some(segment),
            ..api::SegmentInfo::default()
        }];
        let next_page_token = if first { "more".into() } else { String::new() };
        Ok(Response::new(api::ListSegmentsResponse {
            segments,
            next_page_token,
        }))
    }
    async fn list_runners(&self, _: Request<api::ListRunnersRequest>) -> Answer<api::ListRunnersResponse> {
        Ok(Response::new(api::ListRunnersResponse::default()))
    }
}

async fn serve() -> (String, Arc<Scripted>) {
    let scripted = Arc::new(Scripted::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = tidegate_rpc::clients::supervisor_server(scripted.clone());
    let routes = tonic::service::Routes::new(server);
    tokio::spawn(async move {
        let health = tidegate_rpc::health::Health::new();
        let drain = Duration::from_secs(1);
        tidegate_rpc::server::serve(listener, routes, &health, drain, std::future::pending()).await
    });
    (address, scripted)
}

/// A coordinator that stands by.
async fn stand_by(leader: Option<String>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = tidegate_rpc::clients::supervisor_server(Arc::new(Scripted::default()));
    let refusing = tonic::service::interceptor::InterceptedService::new(server, move |_| {
        Err(tidegate_rpc::follow::not_leading(leader.as_deref()))
    });
    tokio::spawn(async move {
        let health = tidegate_rpc::health::Health::new();
        let (routes, drain) = (tonic::service::Routes::new(refusing), Duration::from_secs(1));
        tidegate_rpc::server::serve(listener, routes, &health, drain, std::future::pending()).await
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_finds_the_coordinator_that_leads_and_is_carried_out_once() {
    let (leader, scripted) = serve().await;
    let standby = stand_by(Some(leader.clone())).await;
    let unknowing = stand_by(None).await;
    for servers in [standby.clone(), format!("{unknowing},{standby}")] {
        let (output, out, err) = tidegate(&servers, &["supervisor", "submit", "-"], "{}").await;
        assert!(output.status.success(), "{err}");
        assert_eq!(out, "supervisor wiki runs with version 3 of its spec\n");
        assert_eq!(std::mem::take(&mut *scripted.submitted.lock().unwrap()).len(), 1);
    }
    let (output, _, err) = tidegate(&unknowing, &["supervisor", "list"], "").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.contains("stands by") && err.contains("try again in 1s"),
        "{err}"
    );
}

async fn tidegate(server: &str, arguments: &[&str], input: &str) -> (Output, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env("TIDEGATE_SERVER", server);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let input = input.to_owned();
    let output = tokio::task::spawn_blocking(move || {
        use std::io::Write as _;
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    })
    .await
    .unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout.clone()),
        String::from_utf8(output.stderr.clone()),
    );
    (output, out.unwrap(), err.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_with_comments_is_submitted_as_plain_json() {
    let (server, scripted) = serve().await;
    let (output, out, _) = tidegate(
        &server,
        &["supervisor", "submit", "-"],
        "{ // one\n \"type\": \"kafka\", }",
    )
    .await;
    assert!(output.status.success());
    assert_eq!(out, "supervisor wiki runs with version 3 of its spec\n");
    let sent: serde_json::Value = serde_json::from_str(&scripted.submitted.lock().unwrap()[0]).unwrap();
    assert_eq!(sent, serde_json::json!({"type": "kafka"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_spec_is_told_field_by_field_and_the_status_says_so() {
    let (server, _) = serve().await;
    let (output, out, err) = tidegate(&server, &["supervisor", "submit", "-"], "{\"bad\": 1}").await;
    assert_eq!((output.status.code(), out.as_str()), (Some(1), ""));
    assert_eq!(
        err,
        "error: the spec has 1 error (INVALID_ARGUMENT)\n  spec.ioConfig.taskCount: must be at least 1\n"
    );
    let (output, _, err) = tidegate(
        &server,
        &["supervisor", "submit", "-", "--output", "json"],
        "{\"bad\": 1}",
    )
    .await;
    assert_eq!(output.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_str(&err).unwrap();
    assert_eq!(told["error"]["code"], "INVALID_ARGUMENT");
    assert_eq!(told["error"]["fields"][0]["path"], "spec.ioConfig.taskCount");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_spec_is_an_answer_and_a_bad_exit_status() {
    let (server, _) = serve().await;
    let (output, out, err) = tidegate(&server, &["supervisor", "validate", "-"], "{}").await;
    assert_eq!((output.status.code(), err.as_str()), (Some(1), ""));
    assert!(out.contains("spec.x: unknown (line 2, column 5)"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_to_their_last_page_and_numbers_stay_exact() {
    let (server, _) = serve().await;
    let (_, out, _) = tidegate(&server, &["segment", "list", "--output", "json"], "").await;
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    let numbers: Vec<_> = told["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["partition_num"].clone())
        .collect();
    assert_eq!(numbers, [0, 1]);
    assert_eq!(told["segments"][0]["rows"].as_u64(), Some(9_007_199_254_740_993));
    assert_eq!(
        told["segments"][0]["interval"],
        "1970-01-01T00:00:00.000Z/1970-01-01T01:00:00.000Z"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b62_a_state_of_a_newer_coordinator_is_shown_as_a_number() {
    let (server, _) = serve().await;
    let (output, out, _) = tidegate(&server, &["supervisor", "list"], "").await;
    assert!(output.status.success());
    assert!(out.contains("running") && out.contains("unknown (99)"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_names_only_what_was_asked_for() {
    let (server, scripted) = serve().await;
    let arguments = [
        "supervisor",
        "reset",
        "wiki",
        "--offset",
        "2=15",
        "--partition",
        "0",
        "--why",
        "test",
    ];
    assert!(tidegate(&server, &arguments, "").await.0.status.success());
    let request = scripted.resets.lock().unwrap().remove(0);
    assert_eq!((request.partitions, request.why.as_str()), (vec![0, 2], "test"));
    let offset = request.offsets.unwrap().offsets.remove(0);
    assert_eq!((offset.partition, offset.offset), (2, 15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_says_what_it_would_do_and_does_nothing_that_an_older_coordinator_takes_for_another_wish() {
    let (server, scripted) = serve().await;
    let dry = ["supervisor", "reset", "wiki", "--to", "latest", "--dry-run"];
    let (output, out, _) = tidegate(&server, &dry, "").await;
    assert!(output.status.success());
    for part in ["1500", "10,500", "12000", "250", "refused without --force"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (_, out, _) = tidegate(&server, &[&dry[..], &["--output", "json"]].concat(), "").await;
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["loses_nothing"], false);
    assert_eq!(plan["partitions"][0]["committed"], 1_500);
    assert_eq!(plan["partitions"][1]["committed"], serde_json::Value::Null);

    let old = ["supervisor", "reset", "old", "--to", "earliest"];
    let (output, _, err) = tidegate(&server, &old, "").await;
    assert!(!output.status.success(), "{err}");
    assert!(scripted.resets.lock().unwrap().is_empty(), "nothing was reset");

    let forced = ["supervisor", "reset", "wiki", "--to", "latest", "--force"];
    assert!(tidegate(&server, &forced, "").await.0.status.success());
    let request = scripted.resets.lock().unwrap().remove(0);
    assert_eq!((request.to(), request.force), (api::ResetTo::Latest, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_wrong_is_one_line_that_says_what_to_do() {
    let (server, _) = serve().await;
    let (_, _, err) = tidegate(&server, &["supervisor", "get", "gone"], "").await;
    assert_eq!(
        err,
        "error: no supervisor \"gone\"; tidegate supervisor list shows them (NOT_FOUND)\n"
    );
    let (_, _, err) = tidegate(&server, &["supervisor", "resume", "wiki"], "").await;
    assert_eq!(err, "error: starting (UNAVAILABLE)\n  try again in 2s\n");
    let (output, _, err) = tidegate("http://127.0.0.1:1", &["task", "list"], "").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err.contains("http://127.0.0.1:1") && err.contains("--server"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_an_exit_status() {
    let (server, _) = serve().await;
    let (output, out, _) = tidegate("unused", &["health", &server], "").await;
    assert!(output.status.success());
    assert_eq!(out, format!("{server}: serving\n"));
    assert_eq!(
        tidegate("unused", &["health", "http://127.0.0.1:1"], "")
            .await
            .0
            .status
            .code(),
        Some(1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_waits_for_what_was_asked_and_tells_what_it_came_to() {
    let (server, _) = serve().await;
    let mut arguments = vec![
        "supervisor",
        "checkpoint",
        "wiki",
        "--group",
        "wiki.1",
        "--group",
        "wiki.2",
    ];
    arguments.extend(["--wait", "handed-off"]);
    let (output, out, err) = tidegate(&server, &arguments, "").await;
    assert!(output.status.success(), "{err}");
    let rows: Vec<Vec<&str>> = out
        .lines()
        .filter(|line| line.contains('│'))
        .map(|line| line.trim_matches('│').split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["GROUP", "SEQUENCE", "CHECKPOINT"]);
    assert_eq!(rows[1], ["wiki.1", "3", "closed"], "{out}");
    assert_eq!(rows[2][..3], ["wiki.2", "3", "nothing"], "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_is_read_to_its_last_page_and_a_finding_is_an_exit_status() {
    let (server, _) = serve().await;
    let (output, out, err) = tidegate(&server, &["verify", "wiki", "--deep", "--output", "json"], "").await;
    assert!(output.status.success(), "{err}");
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["ok"], true);
    assert_eq!((&told["segments"], &told["rows"]), (&3.into(), &1_200.into()));
    assert_eq!(told["bytes_read"], 2_100);
    assert_eq!(told["partitions"][0]["end"], 1_210);
    let (output, out, _) = tidegate(&server, &["verify", "bad", "--deep"], "").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        out.contains("object a/b is not there") && out.contains("1 finding"),
        "{out}"
    );
    let (output, _, err) = tidegate(&server, &["verify", "none", "--deep"], "").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("ever published"), "{err}");
}
