//! What every [`CoordinatorStore`] does.

use tidegate_metadata::{
    CoordinatorChange, CoordinatorState, CoordinatorStore, DecisionKind, DecisionRecord, Document,
    GroupRecord, HistoryRecord, Metadata, RunnerRecord, StoreError, SupervisorRecord, TaskRecord,
};
use tidegate_types::{
    BaseSequenceName, EndOffsets, Epoch, GroupId, RunnerId, SequenceId, SupervisorId, TaskId, TimestampMillis,
};

use crate::databases::{Fresh, on_both_databases};

on_both_databases!(
    what_was_written_is_loaded_again,
    changes_of_one_write_are_stored_together_or_not_at_all,
    a_deposed_coordinator_writes_nothing,
    a_decision_never_changes_and_the_first_one_wins,
    two_that_decide_at_once_hear_the_same_decision,
    history_is_newest_first,
    rows_of_a_newer_version_survive,
    services_that_start_at_once_migrate_once,
);

fn document(text: &str) -> Document {
    Document::of(1, 1, &serde_json::json!({ "is": text, "Łódź": [1, null, 2.5] })).unwrap()
}

fn supervisor(id: &str, state: &str) -> SupervisorRecord {
    let id = SupervisorId::new(id).unwrap();
    SupervisorRecord {
        id,
        version: 1,
        state: state.into(),
        document: document(state),
    }
}

fn group(id: &str, state: &str) -> GroupRecord {
    let supervisor = SupervisorId::new("wiki").unwrap();
    GroupRecord {
        id: GroupId::new(id).unwrap(),
        supervisor,
        state: state.into(),
        document: document(state),
    }
}

fn task(id: &str, created_at: i64) -> TaskRecord {
    TaskRecord {
        id: TaskId::new(id).unwrap(),
        group: GroupId::new("g1").unwrap(),
        supervisor: SupervisorId::new("wiki").unwrap(),
        state: "reading".into(),
        created_at: TimestampMillis(created_at),
        document: document(id),
    }
}

fn decision(base: &str, sequence: u32, end: i64, epoch: Epoch) -> DecisionRecord {
    DecisionRecord {
        base: BaseSequenceName::new(base).unwrap(),
        sequence_id: SequenceId(sequence),
        supervisor: SupervisorId::new("wiki").unwrap(),
        group: GroupId::new("g1").unwrap(),
        kind: DecisionKind::Finish,
        end: EndOffsets::from([(0, end), (3, end + 1)]),
        decision_id: format!("decision-{end}"),
        epoch,
        decided_at: TimestampMillis(1_700_000_000_000),
    }
}

async fn lead(store: &Metadata) -> Epoch {
    store
        .raise_epoch("coordinator-1", TimestampMillis(1))
        .await
        .unwrap()
}

async fn what_was_written_is_loaded_again(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(store.current_epoch().await.unwrap(), Epoch(0));
    assert_eq!(store.load_all().await.unwrap(), CoordinatorState::default());
    let epoch = lead(store).await;
    assert_eq!(
        (epoch, store.current_epoch().await.unwrap()),
        (Epoch(1), Epoch(1))
    );

    store
        .put_supervisor(epoch, supervisor("wiki", "pending"))
        .await
        .unwrap();
    store
        .put_supervisor(epoch, supervisor("Apps", "running"))
        .await
        .unwrap();
    store
        .put_supervisor(
            epoch,
            SupervisorRecord {
                version: 2,
                ..supervisor("wiki", "running")
            },
        )
        .await
        .unwrap();
    store.put_group(epoch, group("g1", "reading")).await.unwrap();
    // Created at the same moment: then by id.
    for (id, created_at) in [("t3", 5), ("t1", 9), ("t2", 5)] {
        store.put_task(epoch, task(id, created_at)).await.unwrap();
    }
    let runner = RunnerRecord {
        id: RunnerId::new("r1").unwrap(),
        last_heartbeat: TimestampMillis(77),
        document: document("r1"),
    };
    store.put_runner(epoch, runner.clone()).await.unwrap();

    let expected = CoordinatorState {
        supervisors: vec![
            supervisor("Apps", "running"),
            SupervisorRecord {
                version: 2,
                ..supervisor("wiki", "running")
            },
        ],
        groups: vec![group("g1", "reading")],
        tasks: vec![task("t2", 5), task("t3", 5), task("t1", 9)],
        runners: vec![runner],
    };
    assert_eq!(store.load_all().await.unwrap(), expected);
    assert_eq!(fresh.another().await.load_all().await.unwrap(), expected);

    let gone = [
        CoordinatorChange::DeleteSupervisor(SupervisorId::new("Apps").unwrap()),
        CoordinatorChange::DeleteGroup(GroupId::new("g1").unwrap()),
        CoordinatorChange::DeleteTask(TaskId::new("t3").unwrap()),
        CoordinatorChange::DeleteRunner(RunnerId::new("r1").unwrap()),
    ];
    store.write(epoch, &gone).await.unwrap();
    store.write(epoch, &gone).await.unwrap();
    let rest = store.load_all().await.unwrap();
    assert_eq!(
        (rest.supervisors.len(), rest.groups.len(), rest.runners.len()),
        (1, 0, 0)
    );
    assert_eq!(rest.tasks, vec![task("t2", 5), task("t1", 9)]);
}

async fn changes_of_one_write_are_stored_together_or_not_at_all(fresh: Fresh) {
    let store = &fresh.store;
    let epoch = lead(store).await;
    let changes = [
        CoordinatorChange::PutSupervisor(supervisor("wiki", "running")),
        CoordinatorChange::PutGroup(group("g1", "reading")),
        CoordinatorChange::PutTask(task("t1", 1)),
    ];
    assert!(store.write(Epoch(0), &changes).await.is_err());
    assert_eq!(store.load_all().await.unwrap(), CoordinatorState::default());
    store.write(epoch, &changes).await.unwrap();
    let state = store.load_all().await.unwrap();
    assert_eq!(
        (state.supervisors.len(), state.groups.len(), state.tasks.len()),
        (1, 1, 1)
    );
}

async fn a_deposed_coordinator_writes_nothing(fresh: Fresh) {
    let store = &fresh.store;
    let old = lead(store).await;
    store
        .put_supervisor(old, supervisor("wiki", "running"))
        .await
        .unwrap();
    let new = fresh
        .another()
        .await
        .raise_epoch("coordinator-2", TimestampMillis(2))
        .await
        .unwrap();
    assert_eq!(new, Epoch(old.0 + 1));
    let before = store.load_all().await.unwrap();
    let refused = store
        .put_supervisor(old, supervisor("wiki", "suspended"))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, StoreError::Fenced { held, given, .. } if (held, given) == (new, old)),
        "{refused}"
    );
    assert!(!refused.is_retryable());
    assert!(store.decide(&decision("base", 0, 5, old)).await.is_err());
    // An epoch that this store never gave is no better.
    assert!(store.put_group(Epoch(99), group("g1", "reading")).await.is_err());
    assert_eq!(store.load_all().await.unwrap(), before);
    assert_eq!(
        store
            .decisions(&BaseSequenceName::new("base").unwrap())
            .await
            .unwrap(),
        vec![]
    );
    store
        .put_supervisor(new, supervisor("wiki", "suspended"))
        .await
        .unwrap();
}

async fn a_decision_never_changes_and_the_first_one_wins(fresh: Fresh) {
    let store = &fresh.store;
    let epoch = lead(store).await;
    let first = decision("base", 0, 5, epoch);
    assert_eq!(store.decide(&first).await.unwrap(), first);
    assert_eq!(store.decide(&first).await.unwrap(), first);
    let next = lead(store).await;
    assert_eq!(
        store.decide(&decision("base", 0, 9, next)).await.unwrap(),
        first,
        "the first one stands"
    );
    let second = decision("base", 1, 9, next);
    assert_eq!(store.decide(&second).await.unwrap(), second);
    let other = decision("other", 0, 7, next);
    assert_eq!(store.decide(&other).await.unwrap(), other);
    assert_eq!(store.decisions(&first.base).await.unwrap(), vec![first, second]);
}

async fn two_that_decide_at_once_hear_the_same_decision(fresh: Fresh) {
    let epoch = lead(&fresh.store).await;
    let other = fresh.another().await;
    for round in 0..10 {
        let base = format!("base{round}");
        let (one, two) = (decision(&base, 0, 5, epoch), decision(&base, 0, 8, epoch));
        let (one, two) = tokio::join!(fresh.store.decide(&one), other.decide(&two));
        assert_eq!(one.unwrap(), two.unwrap());
    }
}

async fn history_is_newest_first(fresh: Fresh) {
    let epoch = lead(&fresh.store).await;
    let entry = |what: &str, at| HistoryRecord {
        supervisor: SupervisorId::new("wiki").unwrap(),
        at: TimestampMillis(at),
        what: what.into(),
        version: 1,
        document: document(what),
    };
    // Two at the same moment, and a clock that went back, keep the order in which they were written.
    for (what, at) in [("submitted", 10), ("suspended", 10), ("resumed", 3)] {
        fresh.store.append_history(epoch, entry(what, at)).await.unwrap();
    }
    let history = fresh
        .store
        .history(&SupervisorId::new("wiki").unwrap())
        .await
        .unwrap();
    assert_eq!(
        history,
        vec![
            entry("resumed", 3),
            entry("suspended", 10),
            entry("submitted", 10)
        ]
    );
    assert_eq!(
        fresh
            .store
            .history(&SupervisorId::new("else").unwrap())
            .await
            .unwrap(),
        vec![]
    );
}

async fn rows_of_a_newer_version_survive(fresh: Fresh) {
    let epoch = lead(&fresh.store).await;
    let invented = Document {
        format: 9,
        oldest_reader: 8,
        body: serde_json::json!({ "later": true }),
    };
    let record = GroupRecord {
        document: invented.clone(),
        ..group("g1", "a state of 0.9")
    };
    fresh.store.put_group(epoch, record.clone()).await.unwrap();
    assert_eq!(fresh.store.load_all().await.unwrap().groups, vec![record]);
    assert!(invented.read::<serde_json::Value>(1).is_err());
    let kind = DecisionKind::Unknown(77);
    let decided = DecisionRecord {
        kind,
        ..decision("base", 0, 5, epoch)
    };
    fresh.store.decide(&decided).await.unwrap();
    assert_eq!(fresh.store.decisions(&decided.base).await.unwrap()[0].kind, kind);
}

async fn services_that_start_at_once_migrate_once(fresh: Fresh) {
    // A database of its own that nobody has touched yet.
    let empty = if fresh.url.starts_with("sqlite") {
        format!("{}.new", fresh.url)
    } else {
        let made = tokio::task::spawn_blocking(|| tidegate_servers::Postgres::shared()?.fresh_database_url());
        made.await.unwrap().unwrap()
    };
    let starts = (0..6).map(|_| {
        let url = empty.clone();
        tokio::spawn(async move { Metadata::connect(&url).await })
    });
    let mut stores = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        stores.push(start.await.unwrap().unwrap());
    }
    for (index, store) in stores.iter().enumerate() {
        assert_eq!(lead(store).await, Epoch(index as u64 + 1));
    }
}
