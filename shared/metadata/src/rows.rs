//! Between rows and the words of the field. A row that cannot be read is an error that names table and value.

use sea_orm::ActiveValue;
use serde::{Serialize, de::DeserializeOwned};
use tidegate_types::{DataSource, Interval, SegmentId, SegmentVersion, TimestampMillis};

use crate::{Document, StoreError};

/// Reads the columns of one table for one call.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) what: &'static str,
    pub(crate) table: &'static str,
}

impl Reader {
    pub(crate) fn id<T: std::str::FromStr<Err = tidegate_types::InvalidId>>(
        self,
        text: &str,
    ) -> Result<T, StoreError> {
        text.parse()
            .map_err(|error| StoreError::unreadable(self.what, self.table, error))
    }
    pub(crate) fn json<T: DeserializeOwned>(self, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| StoreError::unreadable(self.what, self.table, error))
    }
    pub(crate) fn document(self, text: &str) -> Result<Document, StoreError> {
        Document::from_text(text).map_err(|error| StoreError::unreadable(self.what, self.table, error))
    }
    /// The content of a document of ours, for a reader of formats up to `reads`.
    pub(crate) fn content<T: DeserializeOwned>(self, text: &str, reads: u32) -> Result<T, StoreError> {
        let document = self.document(text)?;
        document
            .read(reads)
            .map_err(|error| StoreError::unreadable(self.what, self.table, error))
    }
    pub(crate) fn number<T: TryFrom<i64>>(self, number: i64) -> Result<T, StoreError> {
        T::try_from(number)
            .map_err(|_| StoreError::unreadable(self.what, self.table, format!("{number} is out of range")))
    }
    pub(crate) fn interval(self, start: i64, end: i64) -> Result<Interval, StoreError> {
        Interval::new(TimestampMillis(start), TimestampMillis(end))
            .ok_or_else(|| StoreError::unreadable(self.what, self.table, "an interval is empty or backwards"))
    }
    pub(crate) fn version(self, text: &str) -> Result<SegmentVersion, StoreError> {
        SegmentVersion::new(text).map_err(|error| StoreError::unreadable(self.what, self.table, error))
    }
    pub(crate) fn segment_id(
        self,
        data_source: &str,
        start: i64,
        end: i64,
        version: &str,
        partition_num: i64,
    ) -> Result<SegmentId, StoreError> {
        Ok(SegmentId {
            data_source: self.id::<DataSource>(data_source)?,
            interval: self.interval(start, end)?,
            version: self.version(version)?,
            partition_num: self.number(partition_num)?,
        })
    }
}

/// JSON text of offsets and the like, which always serialize.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A value to write.
pub(crate) fn set<T, V>(value: T) -> ActiveValue<V>
where
    V: Into<sea_orm::Value>,
    T: Into<V>,
{
    ActiveValue::Set(value.into())
}

/// Unsigned numbers are stored as signed ones; what does not fit is the largest that does.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
