//! The publisher service: the catalog and the committed offsets.
