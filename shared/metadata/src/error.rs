//! What can go wrong in the store, and whether asking again may help.

use sea_orm::{DbErr, RuntimeErr, sqlx};
use tidegate_types::Epoch;

/// A failed call to the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached. Nothing was changed.
    #[error("{what}: the database cannot be reached: {why}. Nothing was changed; ask again")]
    Away { what: &'static str, why: String },
    /// Others held the rows for longer than we try. Nothing was changed.
    #[error(
        "{what}: the database stayed busy for {attempts} attempts: {why}. Nothing was changed; ask again"
    )]
    Busy {
        what: &'static str,
        attempts: u32,
        why: String,
    },
    /// The connection broke after COMMIT was sent: it may or may not have happened (B43).
    #[error("{what}: the answer to COMMIT was lost: {why}. It may have happened; the same call again tells")]
    UnknownOutcome { what: &'static str, why: String },
    /// The caller's epoch is not the one that holds.
    #[error("{what}: epoch {given} is refused, {held} holds: another coordinator has taken over; stop")]
    Fenced {
        what: &'static str,
        held: Epoch,
        given: Epoch,
    },
    /// A row that cannot be read. Never guessed at.
    #[error("{what}: a row of {table} cannot be read: {why}")]
    Unreadable {
        what: &'static str,
        table: &'static str,
        why: String,
    },
    /// A fault of ours, or a schema that is not ours.
    #[error("{what}: the database refused: {why}")]
    Fault { what: &'static str, why: String },
}

impl StoreError {
    /// True when the same call may succeed later, without anyone doing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Away { .. } | Self::Busy { .. } | Self::UnknownOutcome { .. }
        )
    }

    pub(crate) fn unreadable(what: &'static str, table: &'static str, why: impl ToString) -> Self {
        Self::Unreadable {
            what,
            table,
            why: why.to_string(),
        }
    }
}

/// What a database error means for the transaction that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Rolled back since somebody else was at the same rows: the whole transaction again.
    Conflict,
    /// The connection is gone.
    Away,
    /// Asking again gives the same.
    Fault,
}

/// SQLSTATE of serialization failure, deadlock, lock not available; a unique violation between two that insert
/// at once is settled by doing the transaction again, which then finds the row.
const POSTGRES_CONFLICTS: &[&str] = &["40001", "40P01", "55P03", "23505"];
/// SQLSTATE classes: connection exceptions, operator intervention (shutdown, failover), too many connections.
const POSTGRES_AWAY: &[&str] = &["08", "57P", "53300"];
/// SQLITE_BUSY and SQLITE_LOCKED with their extended codes (the low byte), and the two unique violations.
fn sqlite_meaning(code: u32) -> Meaning {
    match (code & 0xff, code) {
        (5 | 6, _) | (_, 1555 | 2067) => Meaning::Conflict,
        // I/O error, cannot open, disk full: outside our power, and may pass.
        (10 | 13 | 14, _) => Meaning::Away,
        _ => Meaning::Fault,
    }
}

pub(crate) fn meaning(error: &DbErr) -> Meaning {
    let inner = match error {
        DbErr::ConnectionAcquire(_) => return Meaning::Away,
        DbErr::Conn(inner) | DbErr::Exec(inner) | DbErr::Query(inner) => inner,
        _ => return Meaning::Fault,
    };
    let RuntimeErr::SqlxError(inner) = inner else {
        return Meaning::Fault;
    };
    match &**inner {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            if database.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                return code.parse().map_or(Meaning::Fault, sqlite_meaning);
            }
            if POSTGRES_CONFLICTS.contains(&&*code) {
                Meaning::Conflict
            } else if POSTGRES_AWAY.iter().any(|class| code.starts_with(class)) {
                Meaning::Away
            } else {
                Meaning::Fault
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Meaning::Away,
        _ => Meaning::Fault,
    }
}

/// A failed read or statement, outside the question of retries.
pub(crate) fn failed(what: &'static str, error: &DbErr) -> StoreError {
    let why = error.to_string();
    match meaning(error) {
        Meaning::Conflict => StoreError::Busy {
            what,
            attempts: 1,
            why,
        },
        Meaning::Away => StoreError::Away { what, why },
        Meaning::Fault => StoreError::Fault { what, why },
    }
}
