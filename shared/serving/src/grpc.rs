//! Any server of `tidegate.serving.v1.SegmentServing` as the serving tier.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_rpc::Transport;
use tidegate_rpc::clients::{self, ServingClient};
use tidegate_rpc::serving::v1::{AreServedRequest, SegmentAt, ServingState};

use crate::{PublishedObject, Served, ServingError, ServingTier};

const TIER: &str = "the serving tier";
/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// Asks `AreServed`.
#[derive(Debug)]
pub struct Grpc {
    client: ServingClient,
    address: String,
}

impl Grpc {
    /// Over TCP; connects when it is first asked.
    pub fn new(address: &str) -> Result<Self, ServingError> {
        let transport = Transport::connect(address).map_err(|error| ServingError::Address {
            address: address.to_owned(),
            reason: error.to_string(),
            key: "grpc_url",
        })?;
        Ok(Self::over(transport, address))
    }

    /// Over a transport that is there already.
    pub fn over(transport: Transport, address: &str) -> Self {
        Self {
            client: clients::serving(transport),
            address: address.to_owned(),
        }
    }
}

#[async_trait]
impl ServingTier for Grpc {
    async fn check(&self, segment: &PublishedObject) -> Result<Served, ServingError> {
        let request = AreServedRequest {
            segments: vec![SegmentAt {
                id: Some((&segment.id).into()),
                key: segment.key.clone(),
                sha256: segment.sha256.clone(),
            }],
        };
        let no_answer = |reason: String| ServingError::NoAnswer {
            tier: TIER,
            address: self.address.clone(),
            segment: segment.id.to_string(),
            reason,
        };
        if !segment.promoted {
            return Ok(Served::NotYet("it is not at its final key yet".to_owned()));
        }
        let mut client = self.client.clone();
        let answer = match tokio::time::timeout(DEADLINE, client.are_served(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return Err(no_answer(format!("{}: {}", status.code(), status.message()))),
            Err(_) => return Err(no_answer(format!("no answer within {} s", DEADLINE.as_secs()))),
        };
        let [state] = answer.states[..] else {
            return Err(ServingError::Garbled {
                tier: TIER,
                address: self.address.clone(),
                segment: segment.id.to_string(),
                reason: format!("{} states for one segment", answer.states.len()),
            });
        };
        Ok(match ServingState::try_from(state) {
            Ok(ServingState::Served) => Served::Yes("the serving tier has it".to_owned()),
            Ok(ServingState::NotNeeded) => Served::Yes("the serving tier does not need it".to_owned()),
            // A state of a newer version is no confirmation.
            Ok(ServingState::NotServed | ServingState::Unspecified) | Err(_) => {
                Served::NotYet("the serving tier does not have it yet".to_owned())
            }
        })
    }
}
