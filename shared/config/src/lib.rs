//! Configuration: one documented table of keys; TOML file, environment, flags; unknown keys are errors.

mod secret;
mod settings;

pub use secret::{MASK, Secret};
pub use settings::{
    CommonConfig, CoordinatorConfig, CoordinatorSection, HandoffConfig, HandoffSection, ListenConfig,
    LogConfig, LogFormat, MetadataConfig, ObjectsConfig, PublisherConfig, PublisherSection, RunnerConfig,
    RunnerSection, ServingKind, TelemetryConfig,
};
