//! Empty stores, one per test.

use tempfile::TempDir;
use tidegate_metadata::Metadata;
use tidegate_servers::Postgres;

/// A database of one test; gone when dropped.
pub(crate) struct Fresh {
    pub(crate) url: String,
    pub(crate) store: Metadata,
    _folder: Option<TempDir>,
}

impl Fresh {
    /// Another service's handle on the same database.
    pub(crate) async fn another(&self) -> Metadata {
        Metadata::connect(&self.url).await.unwrap()
    }
}

pub(crate) async fn sqlite() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("tidegate.db").display());
    let store = Metadata::connect(&url).await.unwrap();
    Fresh {
        url,
        store,
        _folder: Some(folder),
    }
}

pub(crate) async fn postgres() -> Fresh {
    // Starting a server blocks.
    let url = tokio::task::spawn_blocking(|| Postgres::shared().unwrap().fresh_database_url().unwrap());
    let url = url.await.unwrap();
    let store = Metadata::connect(&url).await.unwrap();
    Fresh {
        url,
        store,
        _folder: None,
    }
}

/// Makes a test of each function of a suite, for each database.
macro_rules! on_both_databases {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::databases::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::databases::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both_databases;
