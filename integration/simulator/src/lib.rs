//! Deterministic simulation of the protocol: seeded faults, invariants after each step.
