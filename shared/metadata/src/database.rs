//! The connection to the database, and its transactions.
//!
//! Promises: SQLite writes are durable before they are answered (WAL with synchronous FULL) and come one at a
//! time; PostgreSQL ones are read committed and lock the rows they decide by. A conflict with others is retried
//! as a whole, bounded and with jitter. A connection that breaks after COMMIT was sent is an unknown outcome and
//! is never retried here (B43).

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use sea_orm::sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};
use sea_orm::{
    ConnectOptions, Database, DatabaseConnection, DatabaseTransaction, DbErr, SqliteTransactionMode,
    TransactionOptions, TransactionTrait,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::{Meaning, StoreError, meaning};
use crate::migrate;

/// How long one attempt of a transaction, or one read, may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long SQLite waits for another process's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a connection of the pool.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The metadata store on a database.
#[derive(Clone)]
pub struct Metadata {
    db: DatabaseConnection,
    /// SQLite: one writer at a time, first come first served. (Between processes its own lock does it.)
    lane: Option<Arc<Mutex<()>>>,
}

impl Metadata {
    /// Connects and migrates. `sqlite:///path/file.db`, `sqlite::memory:`, or `postgres://user:password@host/name`.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let what = "connect to the metadata store";
        let mut attempt = 1;
        loop {
            match Self::connect_once(url).await {
                // Two processes that create one SQLite file at once meet before its busy timeout holds.
                Err(error) if meaning(&error) == Meaning::Conflict && attempt < ATTEMPTS => {
                    pause(attempt).await;
                    attempt += 1;
                }
                Err(error) => return Err(crate::error::failed(what, &error)),
                Ok(store) => return Ok(store),
            }
        }
    }

    /// An empty store that is gone with its last handle; for tests and simulations.
    pub async fn in_memory() -> Result<Self, StoreError> {
        Self::connect("sqlite::memory:").await
    }

    async fn connect_once(url: &str) -> Result<Self, DbErr> {
        let sqlite = url.starts_with("sqlite:");
        let in_memory = url.starts_with("sqlite::memory:");
        let mut options = ConnectOptions::new(url);
        options
            .sqlx_logging(false)
            .max_connections(if in_memory { 1 } else { 8 })
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_timeout(ACQUIRE_TIMEOUT);
        if in_memory {
            // The one connection is the database.
            options.min_connections(1).idle_timeout(None).max_lifetime(None);
        }
        if sqlite {
            options.map_sqlx_sqlite_opts(move |sqlite| {
                let sqlite = sqlite
                    .create_if_missing(true)
                    .busy_timeout(BUSY_TIMEOUT)
                    .foreign_keys(true);
                if in_memory {
                    return sqlite;
                }
                sqlite
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
            });
        } else {
            options
                .statement_timeout(ATTEMPT_TIMEOUT)
                .set_application_name("tidegate");
        }
        let db = Database::connect(options).await?;
        let tx = db
            .begin_with_options(TransactionOptions {
                sqlite_transaction_mode: sqlite.then_some(SqliteTransactionMode::Exclusive),
                ..TransactionOptions::default()
            })
            .await?;
        let applied = migrate::apply(&tx).await?;
        tx.commit().await?;
        if !applied.is_empty() {
            tracing::info!(?applied, "metadata store migrated");
        }
        Ok(Self {
            db,
            lane: sqlite.then(Arc::default),
        })
    }

    /// Closes the connections. Other handles of this store fail from then on.
    pub async fn close(self) -> Result<(), StoreError> {
        self.db
            .close()
            .await
            .map_err(|error| crate::error::failed("close the metadata store", &error))
    }

    /// For reads outside a transaction.
    pub(crate) fn reader(&self) -> &DatabaseConnection {
        &self.db
    }

    pub(crate) fn attempts(&self, what: &'static str, access: Access) -> Attempts<'_> {
        Attempts {
            store: self,
            what,
            access,
            made: 0,
        }
    }
}

/// What a transaction is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    /// Several reads that must agree with each other.
    Snapshot,
}

/// What the body of a transaction may fail with.
#[derive(Debug)]
pub(crate) enum BodyError<R = std::convert::Infallible> {
    Database(DbErr),
    /// The store's own word: not retried, rolled back.
    Store(StoreError),
    /// A refusal of the caller's wish: not retried, rolled back.
    Refused(R),
}

impl<R> From<DbErr> for BodyError<R> {
    fn from(error: DbErr) -> Self {
        Self::Database(error)
    }
}

impl<R> From<StoreError> for BodyError<R> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A failed transaction: the store's fault, or a refusal.
#[derive(Debug)]
pub(crate) enum Failed<R> {
    Store(StoreError),
    Refused(R),
}

impl From<Failed<std::convert::Infallible>> for StoreError {
    fn from(failed: Failed<std::convert::Infallible>) -> Self {
        match failed {
            Failed::Store(error) => error,
            Failed::Refused(never) => match never {},
        }
    }
}

/// An open transaction.
pub(crate) struct Transaction {
    inner: DatabaseTransaction,
    _lane: Option<OwnedMutexGuard<()>>,
}

impl std::ops::Deref for Transaction {
    type Target = DatabaseTransaction;
    fn deref(&self) -> &DatabaseTransaction {
        &self.inner
    }
}

/// The attempts of one transaction. Use through [`in_transaction!`].
pub(crate) struct Attempts<'s> {
    store: &'s Metadata,
    what: &'static str,
    access: Access,
    made: u32,
}

impl Attempts<'_> {
    pub(crate) async fn begin(&mut self) -> Result<Transaction, StoreError> {
        let write = self.access == Access::Write;
        loop {
            self.made += 1;
            let lane = match &self.store.lane {
                Some(lane) if write => Some(Arc::clone(lane).lock_owned().await),
                _ => None,
            };
            let options = TransactionOptions {
                isolation_level: (!write && self.store.lane.is_none())
                    .then_some(sea_orm::IsolationLevel::RepeatableRead),
                access_mode: None,
                // A deferred transaction that writes later may fail half-way; this one waits at its beginning.
                sqlite_transaction_mode: self.store.lane.is_some().then_some(if write {
                    SqliteTransactionMode::Immediate
                } else {
                    SqliteTransactionMode::Deferred
                }),
            };
            match self.store.db.begin_with_options(options).await {
                Ok(inner) => return Ok(Transaction { inner, _lane: lane }),
                Err(error) => {
                    drop(lane);
                    if let Some(error) = self.failed(&error) {
                        return Err(error);
                    }
                    pause(self.made).await;
                }
            }
        }
    }

    /// Runs the body within the time of one attempt.
    pub(crate) async fn bounded<T, R>(
        &self,
        body: impl Future<Output = Result<T, BodyError<R>>>,
    ) -> Result<T, BodyError<R>> {
        tokio::time::timeout(ATTEMPT_TIMEOUT, body)
            .await
            .unwrap_or_else(|_| {
                let why = format!("no answer within {} s", ATTEMPT_TIMEOUT.as_secs());
                Err(BodyError::Store(StoreError::Away { what: self.what, why }))
            })
    }

    /// Commits, or rolls back. `None` means: another attempt.
    pub(crate) async fn settle<T, R>(
        &mut self,
        tx: Transaction,
        result: Result<T, BodyError<R>>,
    ) -> Option<Result<T, Failed<R>>> {
        let error = match result {
            Ok(value) => match tokio::time::timeout(ATTEMPT_TIMEOUT, tx.inner.commit()).await {
                Ok(Ok(())) => return Some(Ok(value)),
                Ok(Err(error)) if meaning(&error) == Meaning::Conflict => error,
                Ok(Err(error)) => return Some(Err(Failed::Store(self.unknown(&error.to_string())))),
                Err(_) => return Some(Err(Failed::Store(self.unknown("no answer in time")))),
            },
            Err(error) => {
                // What cannot be rolled back is rolled back by the database when the connection ends.
                let _ = tokio::time::timeout(ATTEMPT_TIMEOUT, tx.inner.rollback()).await;
                match error {
                    BodyError::Database(error) => error,
                    BodyError::Store(error) => return Some(Err(Failed::Store(error))),
                    BodyError::Refused(refusal) => return Some(Err(Failed::Refused(refusal))),
                }
            }
        };
        if let Some(error) = self.failed(&error) {
            return Some(Err(Failed::Store(error)));
        }
        tracing::debug!(what = self.what, attempt = self.made, %error, "conflict, once more");
        pause(self.made).await;
        None
    }

    /// A fault on COMMIT: it may have happened. A read has no outcome to wonder about.
    fn unknown(&self, why: &str) -> StoreError {
        let (what, why) = (self.what, why.to_owned());
        match self.access {
            Access::Write => StoreError::UnknownOutcome { what, why },
            Access::Snapshot => StoreError::Away { what, why },
        }
    }

    /// The error to end with; `None` while another attempt makes sense.
    fn failed(&self, error: &DbErr) -> Option<StoreError> {
        let (what, why) = (self.what, error.to_string());
        match meaning(error) {
            Meaning::Conflict if self.made < ATTEMPTS => None,
            Meaning::Conflict => Some(StoreError::Busy {
                what,
                attempts: self.made,
                why,
            }),
            Meaning::Away => Some(StoreError::Away { what, why }),
            Meaning::Fault => Some(StoreError::Fault { what, why }),
        }
    }
}

/// Exponential, with full jitter.
async fn pause(attempt: u32) {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << attempt.min(10))
        .min(LONGEST_PAUSE);
    let share: f64 = rand::rng().random_range(0.1..1.0);
    tokio::time::sleep(longest.mul_f64(share)).await;
}

/// Runs `$body` (a future over `$tx`) in a transaction, again after a conflict. The body may run several times.
macro_rules! in_transaction {
    ($store:expr, $access:ident, $what:literal, |$tx:ident| $body:expr) => {{
        let mut attempts = $store.attempts($what, $crate::database::Access::$access);
        loop {
            let $tx = match attempts.begin().await {
                Ok(tx) => tx,
                Err(error) => break Err($crate::database::Failed::Store(error)),
            };
            let result = attempts.bounded($body).await;
            if let Some(done) = attempts.settle($tx, result).await {
                break done;
            }
        }
    }};
}
pub(crate) use in_transaction;

#[cfg(test)]
mod tests {
    use sea_orm::{ConnectionTrait as _, RuntimeErr};

    use super::*;
    use crate::{CoordinatorStore as _, StoreError};

    type Body = Result<u32, BodyError<&'static str>>;

    /// What SQLite says when a row is there already: somebody else was faster.
    async fn conflict(tx: &Transaction) -> DbErr {
        let insert = "INSERT INTO handoff_cursor (id, ordinal) VALUES (1, 0)";
        tx.execute_unprepared(insert).await.unwrap_err()
    }

    #[tokio::test]
    async fn retried_on_a_transient_database_error_attempts_counted() {
        let store = Metadata::in_memory().await.unwrap();
        let attempts = std::sync::atomic::AtomicU32::new(0);
        let done: Result<u32, Failed<&str>> = in_transaction!(store, Write, "count", |tx| async {
            let attempt = attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            tx.execute_unprepared("UPDATE handoff_cursor SET ordinal = ordinal + 1")
                .await?;
            if attempt < 3 {
                return Body::Err(conflict(&tx).await.into());
            }
            Body::Ok(attempt)
        });
        assert_eq!(done.unwrap(), 3);
        // Attempts that failed left nothing behind.
        assert_eq!(
            crate::HandoffStore::cursor(&store).await.unwrap(),
            crate::Ordinal(1)
        );
    }

    #[tokio::test]
    async fn retries_are_bounded_and_end_as_busy() {
        let store = Metadata::in_memory().await.unwrap();
        let attempts = std::sync::atomic::AtomicU32::new(0);
        let done: Result<u32, Failed<&str>> = in_transaction!(store, Write, "count", |tx| async {
            attempts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Body::Err(conflict(&tx).await.into())
        });
        let Err(Failed::Store(error)) = done else {
            panic!("{done:?}")
        };
        assert!(
            matches!(
                error,
                StoreError::Busy {
                    attempts: ATTEMPTS,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(attempts.into_inner(), ATTEMPTS);
    }

    #[tokio::test]
    async fn a_refusal_and_a_fault_are_not_retried_and_leave_nothing() {
        let store = Metadata::in_memory().await.unwrap();
        let refused: Result<u32, Failed<&str>> = in_transaction!(store, Write, "refuse", |tx| async {
            tx.execute_unprepared("UPDATE handoff_cursor SET ordinal = 9")
                .await?;
            Body::Err(BodyError::Refused("no"))
        });
        assert!(matches!(refused, Err(Failed::Refused("no"))), "{refused:?}");
        let fault: Result<u32, Failed<&str>> = in_transaction!(store, Write, "fail", |tx| async {
            tx.execute_unprepared("UPDATE no_such_table SET x = 1").await?;
            Body::Ok(1)
        });
        assert!(
            matches!(fault, Err(Failed::Store(StoreError::Fault { .. }))),
            "{fault:?}"
        );
        assert_eq!(
            crate::HandoffStore::cursor(&store).await.unwrap(),
            crate::Ordinal(0)
        );
    }

    #[tokio::test]
    async fn writes_of_one_process_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Metadata::connect(&format!("sqlite://{}/m.db", folder.path().display()))
            .await
            .unwrap();
        let writers = (0..40).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .raise_epoch("c", tidegate_types::TimestampMillis(1))
                    .await
                    .unwrap()
                    .0
            })
        });
        let mut epochs = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            epochs.push(writer.await.unwrap());
        }
        epochs.sort_unstable();
        assert_eq!(epochs, (1..=40).collect::<Vec<u64>>());
    }

    #[test]
    fn what_a_broken_line_means_is_away() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let error = DbErr::Query(RuntimeErr::SqlxError(Arc::new(sea_orm::sqlx::Error::Io(broken))));
        assert_eq!(meaning(&error), Meaning::Away);
        assert_eq!(
            meaning(&DbErr::ConnectionAcquire(sea_orm::ConnAcquireErr::Timeout)),
            Meaning::Away
        );
        assert_eq!(meaning(&DbErr::Custom("x".into())), Meaning::Fault);
    }
}
