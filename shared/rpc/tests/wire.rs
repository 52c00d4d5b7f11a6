//! The same client works in-process and over a socket; unknown calls and values do no harm.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tidegate_rpc::serving::v1::segment_serving_server::SegmentServing;
use tidegate_rpc::serving::v1::{AreServedRequest, AreServedResponse, SegmentAt, ServingState};
use tidegate_rpc::{Transport, clients, health::Health, server};
use tonic::{Code, Request, Response, Status};

struct AlwaysServed;

#[tonic::async_trait]
impl SegmentServing for AlwaysServed {
    async fn are_served(
        &self,
        request: Request<AreServedRequest>,
    ) -> Result<Response<AreServedResponse>, Status> {
        let states = vec![ServingState::Served.into(); request.into_inner().segments.len()];
        Ok(Response::new(AreServedResponse { states }))
    }
}

async fn over_tcp() -> (Transport, tokio::sync::oneshot::Sender<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let routes = tonic::service::Routes::new(clients::serving_server(Arc::new(AlwaysServed)));
        server::serve(listener, routes, &Health::new(), Duration::from_secs(5), async {
            let _ = stopped.await;
        })
        .await
        .unwrap();
    });
    (Transport::connect(&address).unwrap(), stop)
}

#[tokio::test]
async fn a_call_gives_the_same_answer_in_process_and_over_a_socket() {
    let (tcp, _stop) = over_tcp().await;
    let inside = Transport::in_process(clients::serving_server(Arc::new(AlwaysServed)));
    for transport in [inside, tcp] {
        let request = AreServedRequest {
            segments: vec![SegmentAt::default(); 3],
        };
        let answer = clients::serving(transport)
            .are_served(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.states, [ServingState::Served as i32; 3]);
    }
}

/// B60: the library's own limit is 4 MiB; ours is set on both sides of every client.
#[tokio::test]
async fn b60_a_message_of_20_mib_passes_in_both_ways() {
    let (tcp, _stop) = over_tcp().await;
    let segments = vec![
        SegmentAt {
            key: "k".repeat(1024 * 1024),
            ..Default::default()
        };
        20
    ];
    let answer = clients::serving(tcp)
        .are_served(AreServedRequest { segments })
        .await
        .unwrap();
    assert_eq!(answer.into_inner().states.len(), 20);
}

#[tokio::test]
async fn a_service_that_is_not_there_answers_unimplemented() {
    let (tcp, _stop) = over_tcp().await;
    let refused = clients::publisher(tcp)
        .get_committed_offsets(tidegate_rpc::publisher::v1::GetCommittedOffsetsRequest::default())
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn health_answers_serving_and_the_server_ends_when_told() {
    let (tcp, stop) = over_tcp().await;
    assert!(tidegate_rpc::health::check(tcp.clone()).await.unwrap());
    stop.send(()).unwrap();
    while tidegate_rpc::health::check(tcp.clone())
        .await
        .is_ok_and(|serving| serving)
    {
        tokio::task::yield_now().await;
    }
}

/// B62: a value from a newer peer is kept as its number, never folded into zero.
#[test]
fn b62_an_unknown_enum_value_survives_a_round_trip() {
    let message = AreServedResponse { states: vec![99] };
    let read = AreServedResponse::decode(message.encode_to_vec().as_slice()).unwrap();
    assert_eq!(read.states, [99]);
    assert!(ServingState::try_from(99).is_err());
}

/// Every message, field, enum value and call says what it is.
#[test]
fn everything_in_the_protocol_files_has_a_comment() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/tidegate");
    let mut bare = Vec::new();
    for package in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(package.unwrap().path().join("v1")).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut commented = false;
            // A message without fields, or one whose service call says it all, may stand without.
            for line in text.lines().map(str::trim) {
                let declares = line.starts_with("rpc ")
                    || (line.contains(" = ") && line.ends_with(';') && !line.starts_with("syntax"));
                if declares && !commented {
                    bare.push(format!("{}: {line}", path.display()));
                }
                commented = line.starts_with("//");
            }
        }
    }
    assert!(bare.is_empty(), "without a comment: {bare:#?}");
}

#[tokio::test]
async fn reflection_describes_the_services_so_that_any_client_works() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ListServiceResponse, ServerReflectionRequest};

    let (transport, _stop) = over_tcp().await;
    let mut client = ServerReflectionClient::new(transport);
    let mut ask = async |request: MessageRequest| {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(request),
        };
        let answers = client
            .server_reflection_info(tokio_stream::once(request))
            .await
            .unwrap();
        answers
            .into_inner()
            .message()
            .await
            .unwrap()
            .unwrap()
            .message_response
            .unwrap()
    };
    let MessageResponse::ListServicesResponse(ListServiceResponse { service }) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list of services")
    };
    let names: Vec<&str> = service.iter().map(|service| service.name.as_str()).collect();
    for wanted in [
        "tidegate.serving.v1.SegmentServing",
        "tidegate.coordinator.v1.SupervisorService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&wanted), "{wanted} in {names:?}");
    }
    for symbol in [
        "tidegate.coordinator.v1.SupervisorService",
        "tidegate.types.v1.PartitionOffsets",
    ] {
        let answer = ask(MessageRequest::FileContainingSymbol(symbol.into())).await;
        assert!(
            matches!(answer, MessageResponse::FileDescriptorResponse(_)),
            "{symbol}: {answer:?}"
        );
    }
}
