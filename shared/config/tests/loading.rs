//! Files, variables and flags become settings, or an error that helps.

#![allow(clippy::unwrap_used)] // the helpers of a test are tests too

use std::time::Duration;

use tidegate_config::{
    CoordinatorConfig, HandoffConfig, ObjectsConfig, Problem, PublisherConfig, RunnerConfig, ServingKind,
    Source, Sources, load,
};

fn set(pairs: &[(&str, &str)]) -> Sources {
    Sources::new().environment(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_the_program() {
    let file =
        file("[runner]\nslots = 2\nmemory_limit = \"2GiB\"\nwork_dir = \"w\"\n[objects]\nurl = \"/a b\"\n");
    let sources = set(&[
        ("TIDEGATE__RUNNER__SLOTS", "3"),
        ("TIDEGATE__RUNNER__DISK_LIMIT", "1TB"),
        ("PATH", "/bin"),
    ])
    .file(file.path())
    .program("runner.memory_limit", "1MiB")
    .program("runner.rpc_timeout", "7s");
    let runner = load::<RunnerConfig>(&sources).unwrap().settings.runner;
    assert_eq!(
        (runner.slots, runner.memory_limit, runner.disk_limit),
        (3, 2 << 30, 1_000_000_000_000)
    );
    assert_eq!(runner.rpc_timeout, Duration::from_secs(7));
    let flagged = load::<RunnerConfig>(&sources.flag("runner.slots=9")).unwrap();
    assert_eq!(flagged.settings.runner.slots, 9);
    let origin = |key| {
        flagged
            .effective
            .iter()
            .find(|one| one.key == key)
            .unwrap()
            .origin
            .clone()
    };
    assert_eq!(origin("runner.slots"), Source::Flag);
    assert_eq!(
        origin("runner.work_dir"),
        Source::File {
            path: file.path().display().to_string(),
            line: 4
        }
    );
    assert_eq!(
        origin("runner.disk_limit"),
        Source::Environment {
            variable: "TIDEGATE__RUNNER__DISK_LIMIT".into()
        }
    );
    assert_eq!(origin("runner.rpc_timeout"), Source::Program);
    assert_eq!(origin("drain_timeout"), Source::Default);
}

#[test]
fn an_unknown_key_names_the_nearest_one_and_where_it_came_from() {
    let file = file("[coordinator]\nlisten = \"127.0.0.1:1\"\nheartbeat_intervall = \"1s\"\n");
    let sources = set(&[("TIDEGATE__METADATA__URI", "x"), ("TIDEGATE__PUBLISHER", "x")])
        .file(file.path())
        .flag("publisher.slots=1");
    let error = load::<PublisherConfig>(&sources).unwrap_err();
    let unknown: Vec<_> = error
        .problems
        .iter()
        .filter_map(|problem| match problem {
            Problem::UnknownKey { key, nearest, .. } => Some((key.as_str(), nearest.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        unknown,
        [
            (
                "coordinator.heartbeat_intervall",
                "coordinator.heartbeat_interval"
            ),
            ("metadata.uri", "metadata.url"),
            ("publisher", "coordinator.publisher"),
            ("publisher.slots", "runner.slots"),
        ]
    );
    let text = error.to_string();
    for part in [
        ":3)",
        "TIDEGATE__METADATA__URI",
        "--set",
        "metadata.url is not set",
        "TIDEGATE__OBJECTS__URL",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn one_file_serves_all_four_services() {
    let file = file(
        "drain_timeout = \"PT1M\"\n[metadata]\nurl = \"sqlite:///x\"\n[objects]\nurl = \"s3://b/p\"\n\
         [coordinator]\nlisten = \"0.0.0.0:1\"\n[runner]\nwork_dir = \"w\"\n[publisher]\nsweep_grace = 5000\n\
         [handoff]\nserving = \"druid\"\ndruid_url = \"http://druid:8081\"\n",
    );
    let sources = Sources::new().file(file.path());
    let coordinator = load::<CoordinatorConfig>(&sources).unwrap().settings;
    assert_eq!(coordinator.common.drain_timeout, Duration::from_mins(1));
    assert_eq!(coordinator.coordinator.address.metrics().to_string(), "0.0.0.0:2");
    assert_eq!(
        load::<RunnerConfig>(&sources)
            .unwrap()
            .settings
            .runner
            .address
            .listen
            .port(),
        7200
    );
    assert_eq!(
        load::<PublisherConfig>(&sources)
            .unwrap()
            .settings
            .publisher
            .sweep_grace,
        Duration::from_secs(5)
    );
    let handoff = load::<HandoffConfig>(&sources).unwrap().settings;
    assert_eq!(handoff.handoff.serving, ServingKind::Druid);
    assert_eq!(handoff.metadata.url.expose(), "sqlite:///x");
}

#[test]
fn secrets_do_not_show_in_listings_settings_or_errors() {
    let secrets = [
        ("TIDEGATE__METADATA__URL", "postgres://u:MARKER@h/d"),
        ("TIDEGATE__OBJECTS__SECRET_KEY", "MARKER"),
    ];
    let all = set(&secrets)
        .flag("objects.url=s3://b")
        .flag("objects.access_key=id");
    let loaded = load::<PublisherConfig>(&all).unwrap();
    assert_eq!(
        loaded.settings.objects.secret_key.as_ref().unwrap().expose(),
        "MARKER"
    );
    let json = serde_json::to_string(&loaded.settings.objects).unwrap();
    let wrong = load::<PublisherConfig>(&all.flag("objects.part_size=1")).unwrap_err();
    for text in [
        loaded.to_string(),
        format!("{loaded:?}"),
        json,
        wrong.to_string(),
        format!("{wrong:?}"),
    ] {
        assert!(!text.contains("MARKER"), "{text}");
    }
    let broken = file("[metadata]\nurl = \"MARKER");
    let error = load::<PublisherConfig>(&Sources::new().file(broken.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 2") && !error.contains("MARKER"), "{error}");
}

#[test]
fn values_that_cannot_be_used_say_how_to_write_them_all_at_once() {
    let file = file("drain_timeout = [1]\n[publisher]\nsweep_grace = \"soon\"\nlisten = \"localhost\"\n");
    let sources = Sources::new()
        .file(file.path())
        .flag("log.format=xml")
        .flag("objects.url=/x")
        .flag("metadata.url=")
        .flag("nonsense");
    let error = load::<PublisherConfig>(&sources).unwrap_err();
    assert_eq!(error.problems.len(), 6, "{error}");
    for part in [
        "a list",
        "PT30S",
        "127.0.0.1:7100",
        "text, json",
        "nonsense",
        "it is empty",
    ] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let base = || {
        Sources::new()
            .flag("objects.url=s3://b")
            .flag("metadata.url=sqlite:///x")
            .flag("runner.work_dir=w")
    };
    let refused = |sources: Sources, key: &str| {
        let errors = [
            load::<RunnerConfig>(&sources).err(),
            load::<HandoffConfig>(&sources).err(),
            load::<CoordinatorConfig>(&sources).err(),
        ];
        assert!(
            errors
                .iter()
                .flatten()
                .any(|error| error.to_string().contains(key)),
            "{key}: {errors:?}"
        );
    };
    refused(base().flag("runner.listen=0.0.0.0:7200"), "runner.advertise");
    refused(base().flag("handoff.serving=druid"), "handoff.druid_url");
    refused(base().flag("handoff.serving=grpc"), "handoff.grpc_url");
    refused(base().flag("handoff.max_backoff=1ms"), "handoff.max_backoff");
    refused(
        base().flag("coordinator.runner_timeout=3s"),
        "coordinator.runner_timeout",
    );
    refused(base().flag("objects.endpoint=http://h:1"), "objects.allow_http");
    refused(base().flag("objects.secret_key=x"), "objects.access_key");
}

#[test]
fn an_empty_variable_means_absent_where_that_is_possible() {
    let sources = set(&[
        ("TIDEGATE__OBJECTS__ENDPOINT", ""),
        ("TIDEGATE__OBJECTS__URL", "/x"),
    ])
    .flag("metadata.url=sqlite:///x");
    assert_eq!(
        load::<PublisherConfig>(&sources)
            .unwrap()
            .settings
            .objects
            .endpoint,
        None
    );
}

#[test]
fn a_store_given_by_its_address_alone_has_the_defaults_of_the_table() {
    let sources = Sources::new()
        .flag("objects.url=/x")
        .flag("metadata.url=sqlite:///x");
    let loaded = load::<PublisherConfig>(&sources).unwrap().settings.objects;
    let made = ObjectsConfig::at("/x");
    assert_eq!(
        serde_json::to_value(&loaded).unwrap(),
        serde_json::to_value(&made).unwrap()
    );
}

#[test]
fn a_missing_file_is_named() {
    let error =
        load::<CoordinatorConfig>(&Sources::new().file("/no/such.toml").flag("metadata.url=x")).unwrap_err();
    assert!(error.to_string().contains("/no/such.toml"), "{error}");
}
