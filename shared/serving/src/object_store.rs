//! The object store as the serving tier: a segment is served when whoever reads the folder finds it there whole.

use async_trait::async_trait;
use tidegate_objects::{Key, Objects, VerifyError};

use crate::{PublishedObject, Served, ServingError, ServingTier};

/// Reads the object at its final key once, and compares size and checksum with the catalog.
#[derive(Debug)]
pub struct ObjectStore {
    objects: Objects,
}

impl ObjectStore {
    pub fn new(objects: Objects) -> Self {
        Self { objects }
    }
}

#[async_trait]
impl ServingTier for ObjectStore {
    async fn check(&self, segment: &PublishedObject) -> Result<Served, ServingError> {
        if !segment.promoted {
            return Ok(Served::NotYet("it is not at its final key yet".to_owned()));
        }
        let key = Key::parse(&segment.key).map_err(|error| ServingError::Garbled {
            tier: "the catalog",
            address: self.objects.address().to_owned(),
            segment: segment.id.to_string(),
            reason: error.to_string(),
        })?;
        match self
            .objects
            .verify_bytes(&key, segment.size_bytes, &segment.sha256)
            .await
        {
            Ok(()) => Ok(Served::Yes(format!("readable at {key}"))),
            Err(VerifyError::Store(error)) => Err(error.into()),
            Err(bad @ (VerifyError::Missing { .. } | VerifyError::Differs { .. })) => {
                Ok(Served::NotYet(bad.to_string()))
            }
        }
    }
}
