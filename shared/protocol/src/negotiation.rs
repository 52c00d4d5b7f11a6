//! Who speaks what: protocol versions and named capabilities of two peers.
//!
//! Owns: the versions and capabilities of this build, and what two sides agree on. Promises: a peer that said nothing
//! is release 0.1.0, protocol 0 with no capability (I7); names that are not known here are kept and change nothing.
//! Must never: know how a handshake travels.

use std::collections::BTreeSet;
use std::fmt;

/// Groups may run in checkpointing mode.
pub const INCREMENTAL_HANDOFF: &str = "incremental-handoff";
/// Sequences may be closed by their age.
pub const TIMED_HANDOFF: &str = "timed-handoff";
/// Runners make tasks ready for groups to come.
pub const PREPARED_TASKS: &str = "prepared-tasks";
/// A person may close the open sequences.
pub const CHECKPOINT_NOW: &str = "checkpoint-now";

/// All capabilities of this build.
pub const CAPABILITIES: &[&str] = &[CHECKPOINT_NOW, INCREMENTAL_HANDOFF, PREPARED_TASKS, TIMED_HANDOFF];

/// Versions that a side speaks, both inclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProtocolRange {
    pub min: u32,
    pub max: u32,
}

impl ProtocolRange {
    /// Of this build: 0 is release 0.1.0.
    pub const OWN: Self = Self { min: 0, max: 1 };
}

impl fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

/// What one side says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// coordinator, task-runner, publisher, handoff-checker or cli.
    pub role: String,
    /// For people.
    pub software_version: String,
    /// Unique per process life.
    pub instance_id: String,
    pub protocol: ProtocolRange,
    pub capabilities: BTreeSet<String>,
}

impl Hello {
    /// This build in a role; `disabled` capabilities are not said.
    pub fn own<'a>(
        role: &str,
        software_version: &str,
        instance_id: String,
        disabled: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut capabilities: BTreeSet<String> = CAPABILITIES.iter().map(|name| (*name).to_owned()).collect();
        for name in disabled {
            capabilities.remove(name);
        }
        Self {
            role: role.to_owned(),
            software_version: software_version.to_owned(),
            instance_id,
            protocol: ProtocolRange::OWN,
            capabilities,
        }
    }

    /// A peer without a handshake: release 0.1.0.
    pub fn silent(role: &str) -> Self {
        Self {
            role: role.to_owned(),
            software_version: "0.1.0".to_owned(),
            instance_id: String::new(),
            protocol: ProtocolRange { min: 0, max: 0 },
            capabilities: BTreeSet::new(),
        }
    }

    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.contains(capability)
    }
}

/// What two sides may use with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    pub version: u32,
    /// Capabilities of both.
    pub capabilities: BTreeSet<String>,
}

/// Two sides that cannot speak with each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this {own_role} ({own_version}) speaks protocol {own}, the {peer_role} ({peer_version}) speaks {peer}: upgrade the \
     {older}"
)]
pub struct Incompatible {
    own_role: String,
    own_version: String,
    own: ProtocolRange,
    peer_role: String,
    peer_version: String,
    peer: ProtocolRange,
    older: String,
}

/// The newest version that both speak.
pub fn agree(own: &Hello, peer: &Hello) -> Result<Agreed, Box<Incompatible>> {
    let version = own.protocol.max.min(peer.protocol.max);
    if version < own.protocol.min || version < peer.protocol.min {
        let own_is_older = own.protocol.max < peer.protocol.min;
        return Err(Box::new(Incompatible {
            own_role: own.role.clone(),
            own_version: own.software_version.clone(),
            own: own.protocol,
            peer_role: peer.role.clone(),
            peer_version: peer.software_version.clone(),
            peer: peer.protocol,
            older: if own_is_older {
                own.role.clone()
            } else {
                peer.role.clone()
            },
        }));
    }
    Ok(Agreed {
        version,
        capabilities: own
            .capabilities
            .intersection(&peer.capabilities)
            .cloned()
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(min: u32, max: u32, capabilities: &[&str]) -> Hello {
        Hello {
            protocol: ProtocolRange { min, max },
            capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
            ..Hello::silent("publisher")
        }
    }

    #[test]
    fn the_newest_common_version_and_the_common_capabilities_are_agreed_on() {
        let own = hello(0, 3, &["a", "b"]);
        for (peer, version, capabilities) in [
            (hello(0, 0, &[]), 0, vec![]),
            (hello(2, 9, &["b", "invented-later"]), 3, vec!["b"]),
            (hello(0, 2, &["a", "b"]), 2, vec!["a", "b"]),
        ] {
            let agreed = agree(&own, &peer).unwrap();
            let names: Vec<&str> = agreed.capabilities.iter().map(String::as_str).collect();
            assert_eq!((agreed.version, names), (version, capabilities));
            assert_eq!(agree(&peer, &own).unwrap(), agreed, "both sides come to the same");
        }
    }

    #[test]
    fn ranges_that_do_not_overlap_are_refused_naming_both_and_what_to_upgrade() {
        let (old, new) = (
            hello(0, 1, &[]),
            Hello {
                role: "coordinator".into(),
                ..hello(2, 4, &[])
            },
        );
        let error = agree(&new, &old).unwrap_err().to_string();
        assert!(
            error.contains("2 to 4") && error.contains("0 to 1") && error.ends_with("upgrade the publisher"),
            "{error}"
        );
        let error = agree(&old, &new).unwrap_err().to_string();
        assert!(error.ends_with("upgrade the publisher"), "{error}");
    }

    #[test]
    fn a_capability_that_is_disabled_is_not_said() {
        let hello = Hello::own("publisher", "1", String::new(), [INCREMENTAL_HANDOFF, "unknown"]);
        assert!(!hello.can(INCREMENTAL_HANDOFF) && hello.can(CHECKPOINT_NOW));
    }
}
