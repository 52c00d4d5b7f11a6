//! Serving tiers for handoff: object-store, druid, grpc.
