//! A Druid cluster as the serving tier: its coordinator says whether a segment is served, or needed at all.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, StatusCode, Url};

use crate::{PublishedObject, Served, ServingError, ServingTier};

const TIER: &str = "the Druid coordinator";
/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes of an answer that are shown when it is not understood.
const SHOWN: usize = 200;

/// Asks `GET /druid/coordinator/v1/datasources/{dataSource}/handoffComplete`, which answers `true` or `false`; a
/// segment that no load rule wants, or that is overshadowed, is `true` there.
#[derive(Debug)]
pub struct Druid {
    base: Url,
    client: Client,
}

impl Druid {
    /// `address` is that of a coordinator or of a router in front of it.
    pub fn new(address: &str) -> Result<Self, ServingError> {
        let refused = |reason: String| ServingError::Address {
            address: address.to_owned(),
            reason,
            key: "druid_url",
        };
        let base = Url::parse(address).map_err(|error| refused(error.to_string()))?;
        if base.cannot_be_a_base() || !matches!(base.scheme(), "http" | "https") {
            return Err(refused("it is not http:// or https://".to_owned()));
        }
        let client = Client::builder()
            .timeout(DEADLINE)
            .build()
            .map_err(|error| refused(error.to_string()))?;
        Ok(Self { base, client })
    }

    fn question(&self, segment: &PublishedObject) -> Url {
        let id = &segment.id;
        let mut url = self.base.clone();
        // The base was checked when it was taken.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend([
                "druid",
                "coordinator",
                "v1",
                "datasources",
                id.data_source.as_str(),
                "handoffComplete",
            ]);
        }
        url.query_pairs_mut()
            .append_pair("interval", &id.interval.to_string())
            .append_pair("partitionNumber", &id.partition_num.to_string())
            .append_pair("version", id.version.as_str());
        url
    }

    fn no_answer(&self, segment: &PublishedObject, reason: String) -> ServingError {
        ServingError::NoAnswer {
            tier: TIER,
            address: self.base.to_string(),
            segment: segment.id.to_string(),
            reason,
        }
    }
}

#[async_trait]
impl ServingTier for Druid {
    async fn check(&self, segment: &PublishedObject) -> Result<Served, ServingError> {
        let asked = self.client.get(self.question(segment)).send().await;
        let answer = asked.map_err(|error| self.no_answer(segment, error.to_string()))?;
        let status = answer.status();
        let text = answer
            .text()
            .await
            .map_err(|error| self.no_answer(segment, error.to_string()))?;
        match (status, text.trim()) {
            (StatusCode::OK, "true") => Ok(Served::Yes("Druid says that its handoff is complete".to_owned())),
            (StatusCode::OK, "false") => Ok(Served::NotYet("no historical serves it yet".to_owned())),
            (status, text) => {
                let shown: String = text.chars().take(SHOWN).collect();
                Err(ServingError::Garbled {
                    tier: TIER,
                    address: self.base.to_string(),
                    segment: segment.id.to_string(),
                    reason: format!("{status} {shown:?} instead of true or false"),
                })
            }
        }
    }
}
