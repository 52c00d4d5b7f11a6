//! The handoff-checker service: is each published segment served yet?
