//! The one place that turns a stored spec into its typed form.

use tidegate_spec::SupervisorSpec;

/// Parses the normalized spec of an assignment; the error is one line for a person.
pub(crate) fn parse(spec_json: &str) -> Result<SupervisorSpec, String> {
    tidegate_spec::parse(spec_json)
        .map(|parsed| parsed.spec)
        .map_err(|errors| format!("the spec of the assignment is not understood by this version: {errors}"))
}
