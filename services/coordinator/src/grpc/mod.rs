//! The coordinator's two services.

mod checkpoint;
mod registry;
mod reset;
mod status;
mod supervisor;

pub(crate) use registry::RegistryApi;
pub(crate) use supervisor::SupervisorApi;
