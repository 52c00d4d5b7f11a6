//! The lease of the coordinator that leads.

use std::time::Duration;

use tidegate_metadata::{
    Acquired, Candidate, CoordinatorState, CoordinatorStore, Document, Lease, Metadata, StoreError,
    SupervisorRecord,
};
use tidegate_types::{Epoch, SupervisorId, TimestampMillis};

use crate::databases::{Fresh, on_both_databases};

on_both_databases!(
    of_two_contenders_one_leads_and_the_other_hears_who,
    a_lease_that_was_renewed_is_not_the_one_that_was_seen,
    a_lease_that_did_not_change_is_taken_over_and_its_holder_is_fenced,
    of_many_that_take_the_same_lease_to_be_over_one_gets_it,
    a_released_lease_is_free_at_once_and_its_epoch_is_over,
    a_holder_of_0_1_0_fences_the_leader_and_is_known_by_what_it_does_not_write,
    a_database_of_0_1_0_keeps_its_epoch_and_0_1_0_goes_on_working_on_it,
);

const LASTS: Duration = Duration::from_secs(15);
const NOW: TimestampMillis = TimestampMillis(1_000);

fn candidate(name: &str) -> Candidate {
    Candidate {
        holder: name.into(),
        address: format!("http://{name}:7100"),
        lasts: LASTS,
    }
}

fn lease_of(name: &str, epoch: u64, renewal: u64) -> Lease {
    Lease {
        holder: name.into(),
        address: format!("http://{name}:7100"),
        epoch: Epoch(epoch),
        renewal,
        lasts: Some(LASTS),
    }
}

async fn acquire(store: &Metadata, name: &str, over: Option<&Lease>) -> Acquired {
    store.acquire_lease(&candidate(name), over, NOW).await.unwrap()
}

fn led(epoch: u64) -> Acquired {
    Acquired::Acquired { epoch: Epoch(epoch) }
}

async fn write(store: &Metadata, epoch: u64) -> Result<(), StoreError> {
    let record = SupervisorRecord {
        id: SupervisorId::new("wiki").unwrap(),
        version: 1,
        state: "running".into(),
        document: Document::of(1, 1, &epoch).unwrap(),
    };
    store.put_supervisor(Epoch(epoch), record).await
}

fn is_fenced(result: &Result<(), StoreError>, by: u64) -> bool {
    matches!(result, Err(StoreError::Fenced { held, .. }) if *held == Epoch(by))
}

async fn of_two_contenders_one_leads_and_the_other_hears_who(fresh: Fresh) {
    let other = fresh.another().await;
    assert!(fresh.store.lease().await.unwrap().is_free());
    let (one, two) = tokio::join!(acquire(&fresh.store, "a", None), acquire(&other, "b", None));
    let (leader, heard) = match (one, two) {
        (Acquired::Acquired { epoch: Epoch(1) }, Acquired::Held(lease)) => ("a", lease),
        (Acquired::Held(lease), Acquired::Acquired { epoch: Epoch(1) }) => ("b", lease),
        both => panic!("one leads, with the first epoch, not {both:?}"),
    };
    assert_eq!(heard, lease_of(leader, 1, 0));
    assert_eq!(other.lease().await.unwrap(), heard);
    assert_eq!(other.current_epoch().await.unwrap(), Epoch(1));
}

async fn a_lease_that_was_renewed_is_not_the_one_that_was_seen(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(acquire(store, "a", None).await, led(1));
    let seen = store.lease().await.unwrap();
    // The clock of the holder went back: nothing is decided by it.
    let earlier = TimestampMillis(NOW.0 - 1_000_000);
    store.renew_lease(Epoch(1), LASTS, earlier).await.unwrap();
    assert_eq!(
        acquire(store, "b", Some(&seen)).await,
        Acquired::Held(lease_of("a", 1, 1))
    );
    write(store, 1).await.unwrap();
    let longer = LASTS * 2;
    store.renew_lease(Epoch(1), longer, NOW).await.unwrap();
    assert_eq!(store.lease().await.unwrap().lasts, Some(longer));
}

async fn a_lease_that_did_not_change_is_taken_over_and_its_holder_is_fenced(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(acquire(store, "a", None).await, led(1));
    write(store, 1).await.unwrap();
    let seen = store.lease().await.unwrap();
    assert_eq!(
        acquire(store, "b", None).await,
        Acquired::Held(seen.clone()),
        "without a word that it is over it stays"
    );
    assert_eq!(acquire(store, "b", Some(&seen)).await, led(2));
    assert_eq!(store.lease().await.unwrap(), lease_of("b", 2, 0));
    assert!(is_fenced(&write(store, 1).await, 2));
    assert!(is_fenced(&store.renew_lease(Epoch(1), LASTS, NOW).await, 2));
    assert!(is_fenced(&store.release_lease(Epoch(1)).await, 2));
    assert_eq!(
        store.lease().await.unwrap(),
        lease_of("b", 2, 0),
        "the stale one changed nothing"
    );
    write(store, 2).await.unwrap();
}

async fn of_many_that_take_the_same_lease_to_be_over_one_gets_it(fresh: Fresh) {
    assert_eq!(acquire(&fresh.store, "a", None).await, led(1));
    let seen = fresh.store.lease().await.unwrap();
    let mut tries = Vec::new();
    for index in 0..6 {
        let (store, seen) = (fresh.another().await, seen.clone());
        tries.push(tokio::spawn(async move {
            acquire(&store, &format!("c{index}"), Some(&seen)).await
        }));
    }
    let mut won = 0;
    for one in tries {
        match one.await.unwrap() {
            Acquired::Acquired { epoch } => {
                assert_eq!(epoch, Epoch(2));
                won += 1;
            }
            Acquired::Held(lease) => assert_eq!(lease.epoch, Epoch(2)),
        }
    }
    assert_eq!(won, 1);
}

async fn a_released_lease_is_free_at_once_and_its_epoch_is_over(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(acquire(store, "a", None).await, led(1));
    store.release_lease(Epoch(1)).await.unwrap();
    assert!(store.lease().await.unwrap().is_free());
    assert!(is_fenced(&write(store, 1).await, 2), "it led no more");
    assert!(is_fenced(&store.renew_lease(Epoch(1), LASTS, NOW).await, 2));
    assert_eq!(store.load_all().await.unwrap(), CoordinatorState::default());
    assert_eq!(acquire(store, "b", None).await, led(3));
    write(store, 3).await.unwrap();
}

async fn a_holder_of_0_1_0_fences_the_leader_and_is_known_by_what_it_does_not_write(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(acquire(store, "a", None).await, led(1));
    assert_eq!(store.raise_epoch("17@old", NOW).await.unwrap(), Epoch(2));
    assert!(is_fenced(&store.renew_lease(Epoch(1), LASTS, NOW).await, 2));
    let old = Lease {
        holder: "17@old".into(),
        address: String::new(),
        epoch: Epoch(2),
        renewal: 0,
        lasts: None,
    };
    assert_eq!(store.lease().await.unwrap(), old);
    write(store, 2).await.unwrap();
    assert_eq!(acquire(store, "b", None).await, Acquired::Held(old.clone()));
    assert_eq!(acquire(store, "b", Some(&old)).await, led(3));
    assert!(is_fenced(&write(store, 2).await, 3));
}

/// The statements of 0.1.0, word for word, on a database of that version and then on the migrated one.
async fn a_database_of_0_1_0_keeps_its_epoch_and_0_1_0_goes_on_working_on_it(fresh: Fresh) {
    use sea_orm::{ConnectionTrait as _, Database};
    let old = Database::connect(fresh.url.as_str()).await.unwrap();
    for column in ["address", "leased_epoch", "renewal", "lasts_millis"] {
        let sql = format!("ALTER TABLE leases DROP COLUMN {column}");
        old.execute_unprepared(&sql).await.unwrap();
    }
    old.execute_unprepared("DELETE FROM tidegate_migrations WHERE name <> '0001_first'")
        .await
        .unwrap();
    let take_over = |epoch: u64| {
        format!(
            "UPDATE leases SET holder = '17@old', epoch = {epoch}, acquired_at = 5 WHERE name = 'coordinator'"
        )
    };
    old.execute_unprepared(&take_over(7)).await.unwrap();

    let new = fresh.another().await;
    let seen = new.lease().await.unwrap();
    assert_eq!((seen.epoch, seen.lasts), (Epoch(7), None));
    assert_eq!(acquire(&new, "a", Some(&seen)).await, led(8));
    old.execute_unprepared(&take_over(9)).await.unwrap();
    assert!(is_fenced(&new.renew_lease(Epoch(8), LASTS, NOW).await, 9));
    assert_eq!(new.lease().await.unwrap().lasts, None);
}
