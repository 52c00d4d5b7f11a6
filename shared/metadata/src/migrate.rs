//! Migrations, run under a lock so that two services that start at once do not race.
//!
//! Promises: each migration is applied once, in order, all in one transaction. A migration that this version
//! does not know was made by a newer one and is left alone: migrations only add, so that versions can be rolled
//! back (which is why sea-orm's own runner, which refuses then, is not used).

use std::collections::BTreeSet;

use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, Statement};

/// (name, SQL for both databases), in order. Never changed once released.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_first", include_str!("../migrations/0001_first.sql")),
    (
        "0002_lease_address",
        include_str!("../migrations/0002_lease_address.sql"),
    ),
];

/// Any number that nobody else uses: "tidegate" in the bytes of it.
const ADVISORY_LOCK: i64 = 0x7469_6465_6761_7465;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS tidegate_migrations (name TEXT NOT NULL PRIMARY KEY, position BIGINT NOT NULL)";

/// Applies what is missing. `tx` holds SQLite's exclusive lock, or takes PostgreSQL's advisory one here.
pub(crate) async fn apply(tx: &DatabaseTransaction) -> Result<Vec<&'static str>, DbErr> {
    if tx.get_database_backend() == DbBackend::Postgres {
        tx.execute_unprepared(&format!("SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
            .await?;
    }
    tx.execute_unprepared(CREATE).await?;
    let backend = tx.get_database_backend();
    let rows = tx
        .query_all_raw(Statement::from_string(
            backend,
            "SELECT name FROM tidegate_migrations",
        ))
        .await?;
    let known: BTreeSet<String> = rows
        .iter()
        .map(|row| row.try_get("", "name"))
        .collect::<Result<_, _>>()?;
    let mut applied = Vec::new();
    for (position, (name, sql)) in MIGRATIONS.iter().enumerate() {
        if known.contains(*name) {
            continue;
        }
        tx.execute_unprepared(sql).await?;
        let note = format!("INSERT INTO tidegate_migrations (name, position) VALUES ('{name}', {position})");
        tx.execute_unprepared(&note).await?;
        applied.push(*name);
    }
    for newer in known
        .iter()
        .filter(|name| MIGRATIONS.iter().all(|(known, _)| known != name))
    {
        tracing::info!(migration = %newer, "the database was migrated by a newer version, which is fine");
    }
    Ok(applied)
}
