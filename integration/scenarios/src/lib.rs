//! End-to-end scenarios on real servers with separate processes.
