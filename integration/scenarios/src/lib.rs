//! End-to-end scenarios: real Kafka, PostgreSQL and S3, the four services as separate processes, and totals that
//! come from the data itself.
//!
//! Owns: what a scenario does and which totals it must end with. Promises: one JSON object at the end, `"ok"` true
//! only when every total is exact; loopback only, bounded in count and time; what was started is stopped.
//! Must never: look into a service other than through its public API, its processes and its segments.

mod bad_input;
mod chaos;
mod cluster;
mod events;
mod incremental;
mod kill9;
mod replicas;
mod segments;
mod wikiticker;

use anyhow::{Result, bail};
use serde_json::Value;

/// A scenario: its name, what it shows, and how it is run.
struct Scenario {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<Value>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "wikiticker",
        about: "39,244 real wiki edits, four processes, PostgreSQL and S3: exact totals, plain and rolled up",
        run: wikiticker::run,
    },
    Scenario {
        name: "wikiticker-incremental",
        about: "the same in checkpointing mode: more than 30 checkpoints, handed off while it is still being produced",
        run: incremental::run,
    },
    Scenario {
        name: "wikiticker-kill9",
        about: "the same while each service is killed twice with SIGKILL: the same totals",
        run: kill9::run,
    },
    Scenario {
        name: "wikiticker-replicas",
        about: "two replicas on two task-runners, one of which is killed for good: the same totals",
        run: replicas::run,
    },
    Scenario {
        name: "wikiticker-chaos",
        about: "two replicas, and 24 kills of random services at random moments: the same totals",
        run: chaos::run,
    },
    Scenario {
        name: "bad-input",
        about: "records that are no rows: each in its bucket, nothing stops, nothing else is lost",
        run: bad_input::run,
    },
];

const NAMES: [&str; SCENARIOS.len()] = {
    let mut names = [""; SCENARIOS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = SCENARIOS[index].name;
        index += 1;
    }
    names
};

/// Names of all scenarios.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// What a scenario shows, in one line.
pub fn about(name: &str) -> Option<&'static str> {
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .map(|scenario| scenario.about)
}

/// Runs one scenario; the value holds its totals and `"ok"`.
pub fn run(name: &str) -> Result<Value> {
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else {
        bail!("there is no scenario {name:?}; there are: {}", names().join(", "));
    };
    (scenario.run)()
}
