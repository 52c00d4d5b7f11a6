//! Real PostgreSQL: databases of one's own, and what a kill leaves.
#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use tidegate_servers::Postgres;

#[test]
fn every_fresh_database_is_another_one() {
    let postgres = Postgres::shared().unwrap();
    let first = postgres.fresh_database_url().unwrap();
    let second = postgres.fresh_database_url().unwrap();
    assert_ne!(first, second);
    let names = postgres.sql("SELECT datname FROM pg_database").unwrap();
    for url in [first, second] {
        let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
        assert!(
            names.lines().any(|one| one == name),
            "{name} is missing in {names}"
        );
    }
}

#[test]
fn what_was_committed_is_there_after_a_kill_and_after_a_restart() {
    let mut postgres = Postgres::start_own().unwrap();
    let url = postgres.url();
    postgres.sql("CREATE TABLE kept (word text)").unwrap();
    postgres.sql("INSERT INTO kept VALUES ('før')").unwrap();
    postgres.kill9().unwrap();
    assert!(postgres.sql("SELECT 1").is_err());
    postgres.start_again().unwrap();
    assert_eq!(postgres.sql("SELECT word FROM kept").unwrap(), "før");
    postgres.restart().unwrap();
    assert_eq!(postgres.url(), url);
    assert_eq!(postgres.sql("SELECT word FROM kept").unwrap(), "før");
}

#[test]
fn a_refused_statement_is_told_in_the_servers_words() {
    let error = Postgres::shared()
        .unwrap()
        .sql("SELECT * FROM nowhere")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("nowhere") && error.contains("does not exist"),
        "{error}"
    );
}
