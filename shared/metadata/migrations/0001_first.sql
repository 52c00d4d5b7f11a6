-- The tables of 0.1.0. The same text runs on SQLite and PostgreSQL. Later migrations only add: an older
-- version must be able to work on what a newer one has migrated.
-- Times are milliseconds since 1970, offsets and ends are exclusive at the end, documents are envelopes
-- {format, oldest_reader, body}, other JSON columns say so.

-- Publisher: the segment catalog. `ordinal` grows in the order of commits.
CREATE TABLE segments (
    ordinal BIGINT NOT NULL PRIMARY KEY,
    data_source TEXT NOT NULL,
    interval_start BIGINT NOT NULL,
    interval_end BIGINT NOT NULL,
    version TEXT NOT NULL,
    partition_num BIGINT NOT NULL,
    supervisor_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    sequence_name TEXT NOT NULL,
    publish_id TEXT NOT NULL,
    object_key TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    row_count BIGINT NOT NULL,
    input_rows BIGINT NOT NULL,
    first_offsets TEXT NOT NULL,    -- JSON: partition -> offset
    end_offsets TEXT NOT NULL,      -- JSON: partition -> offset
    writer_version TEXT NOT NULL,
    published_at BIGINT NOT NULL,
    used BOOLEAN NOT NULL,
    promoted BOOLEAN NOT NULL
);
CREATE UNIQUE INDEX segments_id ON segments (data_source, interval_start, interval_end, version, partition_num);
CREATE INDEX segments_sequence ON segments (supervisor_id, generation, sequence_name);
CREATE INDEX segments_unpromoted ON segments (ordinal) WHERE NOT promoted;
CREATE INDEX segments_key ON segments (object_key);

-- Publisher: one row, the last ordinal given. Locked until commit, so that ordinals become visible in order.
CREATE TABLE catalog_clock (
    id BIGINT NOT NULL PRIMARY KEY,
    last_ordinal BIGINT NOT NULL
);
INSERT INTO catalog_clock (id, last_ordinal) VALUES (1, 0);

-- Publisher: publishes that were committed, with the row counts by outcome.
CREATE TABLE publishes (
    publish_id TEXT NOT NULL PRIMARY KEY,
    supervisor_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    base_sequence_name TEXT NOT NULL,
    generation BIGINT NOT NULL,
    task_id TEXT NOT NULL,
    request_key TEXT NOT NULL,
    mode BIGINT NOT NULL,
    decode_version BIGINT NOT NULL,
    segment_count BIGINT NOT NULL,
    counts TEXT NOT NULL,           -- document
    published_at BIGINT NOT NULL
);

-- Publisher: sequences that are published. Never deleted: "already published" is answered from here.
CREATE TABLE published_sequences (
    supervisor_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    sequence_name TEXT NOT NULL,
    sequence_id BIGINT NOT NULL,
    group_id TEXT NOT NULL,
    start_offsets TEXT NOT NULL,    -- JSON: partition -> offset
    end_offsets TEXT NOT NULL,      -- JSON: partition -> offset
    publish_id TEXT NOT NULL,
    published_at BIGINT NOT NULL,
    PRIMARY KEY (supervisor_id, generation, sequence_name)
);

-- Publisher: next offset to publish, per partition.
CREATE TABLE committed_offsets (
    supervisor_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition_id BIGINT NOT NULL,
    next_offset BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    cluster_id TEXT NOT NULL,
    topic_id TEXT NOT NULL,
    version BIGINT NOT NULL,        -- moves so far
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (supervisor_id, topic, partition_id)
);

-- Publisher: the generation of each supervisor's offsets. The row is the lock of all that concerns one supervisor.
CREATE TABLE supervisor_generations (
    supervisor_id TEXT NOT NULL PRIMARY KEY,
    generation BIGINT NOT NULL
);

-- Publisher: resets and skips, by request key.
CREATE TABLE offset_resets (
    supervisor_id TEXT NOT NULL,
    request_key TEXT NOT NULL,
    topic TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    generation BIGINT NOT NULL,     -- raised to
    moves TEXT NOT NULL,            -- document: what moved, from where to where
    result TEXT NOT NULL,           -- document: the offsets after it
    reset_at BIGINT NOT NULL,
    PRIMARY KEY (supervisor_id, request_key)
);

-- Publisher: groups as the coordinator registered them.
CREATE TABLE registered_groups (
    supervisor_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    base_sequence_name TEXT NOT NULL,
    generation BIGINT NOT NULL,
    topic TEXT NOT NULL,
    mode BIGINT NOT NULL,
    start_offsets TEXT NOT NULL,    -- JSON: partition -> offset
    tokens TEXT NOT NULL,           -- JSON: list
    epoch BIGINT NOT NULL,
    revision BIGINT NOT NULL,       -- of the newest registration within its epoch
    ended BOOLEAN NOT NULL,
    registered_at BIGINT NOT NULL,
    ended_at BIGINT,
    PRIMARY KEY (supervisor_id, group_id)
);
CREATE INDEX registered_groups_open ON registered_groups (supervisor_id) WHERE NOT ended;

-- Publisher: one row, the highest coordinator epoch seen.
CREATE TABLE coordinator_epoch (
    id BIGINT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
);
INSERT INTO coordinator_epoch (id, epoch) VALUES (1, 0);

-- Publisher: segment ids that were given, published or not. `lineage` is the key of the request within its
-- sequence: `after:<previous id>` or `in:<start>/<end>`.
CREATE TABLE pending_segments (
    data_source TEXT NOT NULL,
    interval_start BIGINT NOT NULL,
    interval_end BIGINT NOT NULL,
    version TEXT NOT NULL,
    partition_num BIGINT NOT NULL,
    supervisor_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    sequence_name TEXT NOT NULL,
    lineage TEXT NOT NULL,
    group_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (data_source, interval_start, interval_end, version, partition_num)
);
CREATE UNIQUE INDEX pending_segments_request
    ON pending_segments (supervisor_id, data_source, generation, sequence_name, lineage);

-- Publisher: every (interval, version) that ever had a segment, and the next number in it. Never deleted, so
-- that no number is given twice.
CREATE TABLE interval_chunks (
    data_source TEXT NOT NULL,
    interval_start BIGINT NOT NULL,
    interval_end BIGINT NOT NULL,
    version TEXT NOT NULL,
    next_number BIGINT NOT NULL,
    PRIMARY KEY (data_source, interval_start, interval_end, version)
);

-- Publisher: one row per data source, the lock of its allocation.
CREATE TABLE data_sources (
    data_source TEXT NOT NULL PRIMARY KEY
);

-- Coordinator.
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    acquired_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL      -- 0 = does not expire
);
INSERT INTO leases (name, holder, epoch, acquired_at, expires_at) VALUES ('coordinator', '', 0, 0, 0);

CREATE TABLE supervisors (
    supervisor_id TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL,
    state TEXT NOT NULL,
    epoch BIGINT NOT NULL,          -- of the last writer
    document TEXT NOT NULL
);

CREATE TABLE supervisor_history (
    supervisor_id TEXT NOT NULL,
    entry BIGINT NOT NULL,          -- from 1
    at BIGINT NOT NULL,
    what TEXT NOT NULL,
    version BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (supervisor_id, entry)
);

CREATE TABLE task_groups (
    group_id TEXT NOT NULL PRIMARY KEY,
    supervisor_id TEXT NOT NULL,
    state TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    document TEXT NOT NULL
);

CREATE TABLE tasks (
    task_id TEXT NOT NULL PRIMARY KEY,
    group_id TEXT NOT NULL,
    supervisor_id TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    document TEXT NOT NULL
);

CREATE TABLE runners (
    runner_id TEXT NOT NULL PRIMARY KEY,
    last_heartbeat BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    document TEXT NOT NULL
);

-- Coordinator: decisions. A row is written once and never changes.
CREATE TABLE checkpoint_log (
    base_sequence_name TEXT NOT NULL,
    sequence_id BIGINT NOT NULL,
    supervisor_id TEXT NOT NULL,
    group_id TEXT NOT NULL,
    kind BIGINT NOT NULL,
    end_offsets TEXT NOT NULL,      -- JSON: partition -> offset
    decision_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    decided_at BIGINT NOT NULL,
    PRIMARY KEY (base_sequence_name, sequence_id)
);

-- Handoff-checker.
CREATE TABLE handoffs (
    data_source TEXT NOT NULL,
    interval_start BIGINT NOT NULL,
    interval_end BIGINT NOT NULL,
    version TEXT NOT NULL,
    partition_num BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,        -- of the catalog
    state BIGINT NOT NULL,
    detail TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    since BIGINT NOT NULL,
    served_at BIGINT,
    document TEXT NOT NULL,
    PRIMARY KEY (data_source, interval_start, interval_end, version, partition_num)
);
CREATE INDEX handoffs_ordinal ON handoffs (ordinal);
CREATE INDEX handoffs_pending ON handoffs (ordinal) WHERE state <> 2;

CREATE TABLE handoff_cursor (
    id BIGINT NOT NULL PRIMARY KEY,
    ordinal BIGINT NOT NULL
);
INSERT INTO handoff_cursor (id, ordinal) VALUES (1, 0);
