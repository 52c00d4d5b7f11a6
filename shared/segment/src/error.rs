//! What can go wrong: the disk, never the rows.

use std::path::{Path, PathBuf};

/// A run or a segment file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("cannot {doing} {}: {source}; check free space and permissions of the work directory", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot {doing} {}: {source}", path.display())]
    Arrow {
        doing: &'static str,
        path: PathBuf,
        source: arrow::error::ArrowError,
    },
    #[error("cannot {doing} {}: {source}", path.display())]
    Parquet {
        doing: &'static str,
        path: PathBuf,
        source: parquet::errors::ParquetError,
    },
    #[error("{} is damaged: its checksum is {found}, it was written with {expected}; its rows are read again", path.display())]
    Damaged {
        path: PathBuf,
        expected: String,
        found: String,
    },
    #[error("columns do not fit together: {0}")]
    Columns(#[from] arrow::error::ArrowError),
}

impl SegmentError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
    pub(crate) fn arrow(doing: &'static str, path: &Path) -> impl FnOnce(arrow::error::ArrowError) -> Self {
        move |source| Self::Arrow {
            doing,
            path: path.to_owned(),
            source,
        }
    }
    pub(crate) fn parquet(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        move |source| Self::Parquet {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}
