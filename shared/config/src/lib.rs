//! Configuration: one documented table of keys; TOML file, environment, flags; unknown keys are errors.
//!
//! Owns: key names, defaults and how values are written ([`keys`]). Promises: every problem is reported at once,
//! with its key and where it came from; a secret is never shown. Must never: read anything else than the sources
//! it is given, or know what a service does with a value.

mod check;
mod error;
mod key;
pub mod keys;
mod load;
mod secret;
mod settings;
mod source;

pub use error::{ConfigError, Problem, Source};
pub use key::{Default, Key, Kind, PREFIX};
pub use load::{Effective, Loaded, Settings, load};
pub use secret::{MASK, Secret};
pub use settings::{
    CommonConfig, CoordinatorConfig, CoordinatorSection, HandoffConfig, HandoffSection, ListenConfig,
    LogConfig, LogFormat, MetadataConfig, ObjectsConfig, PublisherConfig, PublisherSection, RunnerConfig,
    RunnerSection, ServingKind, TelemetryConfig,
};
pub use source::{ConfigArgs, Sources};
