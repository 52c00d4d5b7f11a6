//! The tables as sea-orm entities. Columns and their meaning: `migrations/`.

/// One entity per table, in a module of its own as sea-orm wants it.
macro_rules! table {
    ($module:ident, $name:literal, { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        #[allow(unreachable_pub)] // sea-orm's derives need `pub`
        pub(crate) mod $module {
            use sea_orm::entity::prelude::*;

            #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
            #[sea_orm(table_name = $name)]
            pub struct Model {
                $($(#[$attribute])* pub $field: $type,)*
            }

            #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
            pub enum Relation {}

            impl ActiveModelBehavior for ActiveModel {}
        }
    };
}

table!(segments, "segments", {
    #[sea_orm(primary_key, auto_increment = false)] ordinal: i64,
    data_source: String,
    interval_start: i64,
    interval_end: i64,
    version: String,
    partition_num: i64,
    supervisor_id: String,
    group_id: String,
    generation: i64,
    sequence_name: String,
    publish_id: String,
    object_key: String,
    size_bytes: i64,
    sha256: String,
    row_count: i64,
    input_rows: i64,
    first_offsets: String,
    end_offsets: String,
    writer_version: String,
    published_at: i64,
    used: bool,
    promoted: bool,
});

table!(catalog_clock, "catalog_clock", {
    #[sea_orm(primary_key, auto_increment = false)] id: i64,
    last_ordinal: i64,
});

table!(publishes, "publishes", {
    #[sea_orm(primary_key, auto_increment = false)] publish_id: String,
    supervisor_id: String,
    group_id: String,
    base_sequence_name: String,
    generation: i64,
    task_id: String,
    request_key: String,
    mode: i64,
    decode_version: i64,
    segment_count: i64,
    counts: String,
    published_at: i64,
});

table!(published_sequences, "published_sequences", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    #[sea_orm(primary_key, auto_increment = false)] generation: i64,
    #[sea_orm(primary_key, auto_increment = false)] sequence_name: String,
    sequence_id: i64,
    group_id: String,
    start_offsets: String,
    end_offsets: String,
    publish_id: String,
    published_at: i64,
});

table!(committed_offsets, "committed_offsets", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    #[sea_orm(primary_key, auto_increment = false)] topic: String,
    #[sea_orm(primary_key, auto_increment = false)] partition_id: i64,
    next_offset: i64,
    generation: i64,
    cluster_id: String,
    topic_id: String,
    version: i64,
    updated_at: i64,
});

table!(supervisor_generations, "supervisor_generations", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    generation: i64,
});

table!(offset_resets, "offset_resets", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    #[sea_orm(primary_key, auto_increment = false)] request_key: String,
    topic: String,
    who: String,
    why: String,
    generation: i64,
    moves: String,
    result: String,
    reset_at: i64,
});

table!(registered_groups, "registered_groups", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    #[sea_orm(primary_key, auto_increment = false)] group_id: String,
    base_sequence_name: String,
    generation: i64,
    topic: String,
    mode: i64,
    start_offsets: String,
    tokens: String,
    epoch: i64,
    revision: i64,
    ended: bool,
    registered_at: i64,
    ended_at: Option<i64>,
});

table!(coordinator_epoch, "coordinator_epoch", {
    #[sea_orm(primary_key, auto_increment = false)] id: i64,
    epoch: i64,
});

table!(pending_segments, "pending_segments", {
    #[sea_orm(primary_key, auto_increment = false)] data_source: String,
    #[sea_orm(primary_key, auto_increment = false)] interval_start: i64,
    #[sea_orm(primary_key, auto_increment = false)] interval_end: i64,
    #[sea_orm(primary_key, auto_increment = false)] version: String,
    #[sea_orm(primary_key, auto_increment = false)] partition_num: i64,
    supervisor_id: String,
    generation: i64,
    sequence_name: String,
    lineage: String,
    group_id: String,
    created_at: i64,
});

table!(interval_chunks, "interval_chunks", {
    #[sea_orm(primary_key, auto_increment = false)] data_source: String,
    #[sea_orm(primary_key, auto_increment = false)] interval_start: i64,
    #[sea_orm(primary_key, auto_increment = false)] interval_end: i64,
    #[sea_orm(primary_key, auto_increment = false)] version: String,
    next_number: i64,
});

table!(data_sources, "data_sources", {
    #[sea_orm(primary_key, auto_increment = false)] data_source: String,
});

table!(leases, "leases", {
    #[sea_orm(primary_key, auto_increment = false)] name: String,
    holder: String,
    epoch: i64,
    acquired_at: i64,
    expires_at: i64,
    address: String,
    leased_epoch: i64,
    renewal: i64,
    lasts_millis: i64,
});

table!(supervisors, "supervisors", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    version: i64,
    state: String,
    epoch: i64,
    document: String,
});

table!(supervisor_history, "supervisor_history", {
    #[sea_orm(primary_key, auto_increment = false)] supervisor_id: String,
    #[sea_orm(primary_key, auto_increment = false)] entry: i64,
    at: i64,
    what: String,
    version: i64,
    epoch: i64,
    document: String,
});

table!(task_groups, "task_groups", {
    #[sea_orm(primary_key, auto_increment = false)] group_id: String,
    supervisor_id: String,
    state: String,
    epoch: i64,
    document: String,
});

table!(tasks, "tasks", {
    #[sea_orm(primary_key, auto_increment = false)] task_id: String,
    group_id: String,
    supervisor_id: String,
    state: String,
    created_at: i64,
    epoch: i64,
    document: String,
});

table!(runners, "runners", {
    #[sea_orm(primary_key, auto_increment = false)] runner_id: String,
    last_heartbeat: i64,
    epoch: i64,
    document: String,
});

table!(checkpoint_log, "checkpoint_log", {
    #[sea_orm(primary_key, auto_increment = false)] base_sequence_name: String,
    #[sea_orm(primary_key, auto_increment = false)] sequence_id: i64,
    supervisor_id: String,
    group_id: String,
    kind: i64,
    end_offsets: String,
    decision_id: String,
    epoch: i64,
    decided_at: i64,
});

table!(handoffs, "handoffs", {
    #[sea_orm(primary_key, auto_increment = false)] data_source: String,
    #[sea_orm(primary_key, auto_increment = false)] interval_start: i64,
    #[sea_orm(primary_key, auto_increment = false)] interval_end: i64,
    #[sea_orm(primary_key, auto_increment = false)] version: String,
    #[sea_orm(primary_key, auto_increment = false)] partition_num: i64,
    ordinal: i64,
    state: i64,
    detail: String,
    attempts: i64,
    since: i64,
    served_at: Option<i64>,
    document: String,
});

table!(handoff_cursor, "handoff_cursor", {
    #[sea_orm(primary_key, auto_increment = false)] id: i64,
    ordinal: i64,
});
