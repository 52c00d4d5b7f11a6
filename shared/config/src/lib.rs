//! Configuration: one documented table of keys; TOML file, environment, flags; unknown keys are errors.
