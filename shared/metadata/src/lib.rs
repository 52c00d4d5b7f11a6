//! The metadata store on SQLite and PostgreSQL: catalog, committed offsets, allocation, supervisors, groups, checkpoint log, handoffs.
