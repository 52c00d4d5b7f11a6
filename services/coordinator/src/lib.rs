//! The coordinator service: supervisors, task groups, tasks, the checkpoint log, the runner registry.
