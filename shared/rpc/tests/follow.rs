//! Clients find the coordinator that leads, in a bounded number of calls.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_rpc::follow::{leader_named, not_leading};
use tidegate_rpc::serving::v1::segment_serving_server::SegmentServing;
use tidegate_rpc::serving::v1::{AreServedRequest, AreServedResponse, SegmentAt};
use tidegate_rpc::{Transport, clients, health::Health, server};
use tonic::{Code, Request, Response, Status};

#[derive(Clone)]
enum Role {
    Leads,
    /// And names this one.
    StandsBy(Option<String>),
}

fn stands_by(leader: &str) -> Role {
    Role::StandsBy(Some(leader.to_owned()))
}

/// A service with a leader; any service will do.
struct Peer {
    role: Mutex<Role>,
    asked: AtomicU32,
    is_silent: bool,
}

#[tonic::async_trait]
impl SegmentServing for Peer {
    async fn are_served(
        &self,
        request: Request<AreServedRequest>,
    ) -> Result<Response<AreServedResponse>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_silent {
            std::future::pending::<()>().await;
        }
        if let Role::StandsBy(leader) = self.role.lock().unwrap().clone() {
            return Err(not_leading(leader.as_deref()));
        }
        let states = vec![7; request.into_inner().segments.len()];
        Ok(Response::new(AreServedResponse { states }))
    }
}

struct Up {
    peer: Arc<Peer>,
    address: String,
}

impl Up {
    async fn start(role: Role, is_silent: bool) -> Self {
        let peer = Arc::new(Peer {
            role: Mutex::new(role),
            asked: AtomicU32::new(0),
            is_silent,
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let routes = tonic::service::Routes::new(clients::serving_server(peer.clone()));
        tokio::spawn(async move {
            let never = std::future::pending();
            server::serve(listener, routes, &Health::new(), Duration::from_secs(1), never).await
        });
        Self { peer, address }
    }
    async fn leader() -> Self {
        Self::start(Role::Leads, false).await
    }
    async fn standby(leader: Option<&str>) -> Self {
        Self::start(Role::StandsBy(leader.map(str::to_owned)), false).await
    }
    fn now(&self, role: Role) {
        *self.peer.role.lock().unwrap() = role;
    }
    fn asked(&self) -> u32 {
        self.peer.asked.swap(0, Ordering::SeqCst)
    }
}

async fn ask(transport: &Transport) -> Result<usize, Status> {
    let request = AreServedRequest {
        segments: vec![SegmentAt::default(); 3],
    };
    let answer = clients::serving(transport.clone()).are_served(request).await?;
    Ok(answer.into_inner().states.len())
}

/// An address at which nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_standby_names_the_leader_and_the_client_stays_with_it() {
    let leader = Up::leader().await;
    let standby = Up::standby(Some(&leader.address)).await;
    let transport = Transport::to_leader(&standby.address).unwrap();
    assert_eq!(ask(&transport).await.unwrap(), 3);
    assert_eq!((standby.asked(), leader.asked()), (1, 1));
    assert_eq!(ask(&transport).await.unwrap(), 3);
    assert_eq!((standby.asked(), leader.asked()), (0, 1), "it remembers");
    // The lead goes back.
    standby.now(Role::Leads);
    leader.now(stands_by(&standby.address));
    assert_eq!(ask(&transport).await.unwrap(), 3);
    assert_eq!((standby.asked(), leader.asked()), (1, 1));
}

#[tokio::test]
async fn two_that_name_each_other_end_the_call_after_one_question_each() {
    let one = Up::standby(None).await;
    let two = Up::standby(Some(&one.address)).await;
    one.now(stands_by(&two.address));
    let list = format!("{}, {}", one.address, two.address);
    let status = ask(&Transport::to_leader(&list).unwrap()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        leader_named(&status),
        Some(one.address.as_str()),
        "the last answer is told"
    );
    assert!(status.message().contains(&one.address), "{status}");
    assert_eq!((one.asked(), two.asked()), (1, 1));
}

#[tokio::test]
async fn a_chain_of_wrong_leaders_ends() {
    let mut next = Up::standby(None).await;
    let mut chain = Vec::new();
    for _ in 0..8 {
        let before = Up::standby(Some(&next.address)).await;
        chain.push(std::mem::replace(&mut next, before));
    }
    let transport = Transport::to_leader(&next.address).unwrap();
    assert_eq!(ask(&transport).await.unwrap_err().code(), Code::Unavailable);
    let asked: u32 = chain.iter().map(Up::asked).sum::<u32>() + next.asked();
    assert_eq!(asked, 4, "the one that it was given, and three that were named");
}

#[tokio::test]
async fn an_address_where_nobody_is_and_one_that_knows_no_leader_are_passed_over() {
    let leader = Up::leader().await;
    let unknowing = Up::standby(None).await;
    let list = format!("{},{},{}", nobody().await, unknowing.address, leader.address);
    let transport = Transport::to_leader(&list).unwrap();
    assert_eq!(ask(&transport).await.unwrap(), 3);
    assert_eq!(ask(&transport).await.unwrap(), 3);
    assert_eq!((unknowing.asked(), leader.asked()), (1, 2));
}

#[tokio::test]
async fn a_leader_that_is_gone_is_left_for_those_that_the_client_was_given() {
    let gone = nobody().await;
    let standby = Up::standby(Some(&gone)).await;
    let transport = Transport::to_leader(&standby.address).unwrap();
    let status = ask(&transport).await.unwrap_err();
    assert_eq!(
        leader_named(&status),
        Some(gone.as_str()),
        "who answered says more than who did not"
    );
    standby.now(Role::Leads);
    assert_eq!(ask(&transport).await.unwrap(), 3);
}

#[tokio::test]
async fn a_caller_that_gave_up_waiting_begins_with_another_one() {
    let silent = Up::start(Role::Leads, true).await;
    let leader = Up::leader().await;
    let list = format!("{},{}", silent.address, leader.address);
    let transport = Transport::to_leader(&list).unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(200), ask(&transport)).await;
    assert!(waited.is_err());
    assert_eq!(ask(&transport).await.unwrap(), 3);
    assert_eq!((silent.asked(), leader.asked()), (1, 1));
}

#[tokio::test]
async fn a_call_that_failed_at_the_leader_is_not_repeated_elsewhere() {
    struct Fails;
    #[tonic::async_trait]
    impl SegmentServing for Fails {
        async fn are_served(
            &self,
            _request: Request<AreServedRequest>,
        ) -> Result<Response<AreServedResponse>, Status> {
            Err(Status::unavailable("the store is away"))
        }
    }
    let other = Up::leader().await;
    let own = Transport::in_process(clients::serving_server(Arc::new(Fails)));
    let transport = Transport::to_leader_by(&other.address, own);
    assert_eq!(ask(&transport).await.unwrap_err().message(), "the store is away");
    assert_eq!(other.asked(), 0);
}

#[tokio::test]
async fn the_one_in_this_process_names_the_leader_too() {
    let leader = Up::leader().await;
    let own = Arc::new(Peer {
        role: Mutex::new(stands_by(&leader.address)),
        asked: AtomicU32::new(0),
        is_silent: false,
    });
    let transport = Transport::to_leader_by(
        "http://127.0.0.1:1",
        Transport::in_process(clients::serving_server(own.clone())),
    );
    assert_eq!(ask(&transport).await.unwrap(), 3);
    leader.now(stands_by("http://127.0.0.1:1"));
    *own.role.lock().unwrap() = Role::Leads;
    assert_eq!(ask(&transport).await.unwrap(), 3);
}

#[tokio::test]
async fn a_list_with_a_wrong_address_or_none_is_refused() {
    for bad in ["", " , ", "http://h:1,not an address"] {
        assert!(Transport::to_leader(bad).is_err(), "{bad:?}");
    }
}
