//! Which tables a service reads, and what must fit together in them.

use crate::error::Problem;
use crate::keys::{COMMON, COORDINATOR, HANDOFF, METADATA, OBJECTS, PUBLISHER, RUNNER, Table};
use crate::load::Settings;
use crate::settings::{
    CommonConfig, CoordinatorConfig, HandoffConfig, ListenConfig, ObjectsConfig, PublisherConfig,
    RunnerConfig, ServingKind,
};

fn unless(fits: bool, key: &'static str, what: &str) -> Option<Problem> {
    (!fits).then(|| Problem::DoesNotFit {
        key,
        what: what.to_owned(),
    })
}

fn objects(objects: &ObjectsConfig) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(unless(
        objects.part_size >= 5 << 20,
        "objects.part_size",
        "stores refuse parts below 5 MiB",
    ));
    let plain = objects
        .endpoint
        .as_deref()
        .is_some_and(|endpoint| endpoint.starts_with("http://"));
    problems.extend(unless(
        !plain || objects.allow_http,
        "objects.allow_http",
        "objects.endpoint is plain HTTP; set this to true, or use https://",
    ));
    problems.extend(unless(
        objects.access_key.is_some() || objects.secret_key.is_none() || objects.url.starts_with("gs:"),
        "objects.access_key",
        "objects.secret_key is set without it",
    ));
    problems
}

impl Settings for CommonConfig {
    const TABLES: &'static [Table] = &[COMMON];
}

impl Settings for CoordinatorConfig {
    const TABLES: &'static [Table] = &[COMMON, METADATA, COORDINATOR];

    fn check(&self) -> Vec<Problem> {
        let section = &self.coordinator;
        let mut problems = Vec::new();
        problems.extend(unless(
            section.runner_timeout >= section.heartbeat_interval * 3,
            "coordinator.runner_timeout",
            "it must be at least three times coordinator.heartbeat_interval, else a late heartbeat loses a runner",
        ));
        problems.extend(unless(
            !section.lease_duration.is_zero() && !section.heartbeat_interval.is_zero(),
            "coordinator.lease_duration",
            "neither it nor coordinator.heartbeat_interval may be 0",
        ));
        problems
    }
}

impl Settings for RunnerConfig {
    const TABLES: &'static [Table] = &[COMMON, OBJECTS, RUNNER];

    fn check(&self) -> Vec<Problem> {
        let mut problems = objects(&self.objects);
        problems.extend(reachable(&self.runner.address, "runner.advertise"));
        problems
    }
}

impl Settings for PublisherConfig {
    const TABLES: &'static [Table] = &[COMMON, METADATA, OBJECTS, PUBLISHER];

    fn check(&self) -> Vec<Problem> {
        objects(&self.objects)
    }
}

impl Settings for HandoffConfig {
    const TABLES: &'static [Table] = &[COMMON, METADATA, OBJECTS, HANDOFF];

    fn check(&self) -> Vec<Problem> {
        let section = &self.handoff;
        let mut problems = objects(&self.objects);
        problems.extend(match section.serving {
            ServingKind::ObjectStore => None,
            ServingKind::Druid => unless(
                section.druid_url.is_some(),
                "handoff.druid_url",
                "handoff.serving needs it",
            ),
            ServingKind::Grpc => unless(
                section.grpc_url.is_some(),
                "handoff.grpc_url",
                "handoff.serving needs it",
            ),
        });
        problems.extend(unless(
            !section.poll_interval.is_zero() && section.max_backoff >= section.poll_interval,
            "handoff.max_backoff",
            "it may not be below handoff.poll_interval, which may not be 0",
        ));
        problems
    }
}

/// Others are given this address, so it must be one.
fn reachable(address: &ListenConfig, key: &'static str) -> Option<Problem> {
    unless(
        address.advertise.is_some() || !address.listen.ip().is_unspecified(),
        key,
        "the service binds every interface, so others need to be told at which address it is reached",
    )
}
