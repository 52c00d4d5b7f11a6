//! Names, labels and meaning of all metrics: the one place. `docs/metrics.md` is printed from here, and a test
//! keeps both the same. Every sample also has the label `service`.

use crate::metrics::{Counter, Gauge, Histogram};

macro_rules! families {
    ($($kind:ident<$count:literal> $constant:ident $name:literal $labels:tt $help:literal)*) => {
        $(
            #[doc = $help]
            pub const $constant: $kind<$count> = $kind { name: $name, help: $help, labels: $labels };
        )*

        /// (name, kind, labels, help) of each family, for the docs.
        const ALL: &[(&str, &str, &[&str], &str)] = &[$(($name, stringify!($kind), &$labels, $help)),*];
    };
}

families! {
    Counter<2> ROWS "tidegate_rows_total" ["supervisor", "outcome"]
        "Records read, by what became of them: accepted, rejected, unparseable, filtered, tombstone, empty, oversized."
    Counter<1> RECORD_BYTES "tidegate_record_bytes_total" ["supervisor"]
        "Bytes of the values of the records read."
    Gauge<3> LAG "tidegate_lag_records" ["supervisor", "topic", "partition"]
        "Offsets between the next record to read and the end of the partition."
    Gauge<3> COMMITTED_LAG "tidegate_committed_lag_records" ["supervisor", "topic", "partition"]
        "Offsets between the committed offset and the end of the partition."
    Counter<1> CONSUMER_REBUILDS "tidegate_consumer_rebuilds_total" ["supervisor"]
        "Consumers that were made anew since they stood still in spite of lag."
    Gauge<1> MEMORY_BYTES "tidegate_rows_in_memory_bytes" ["supervisor"]
        "Bytes of rows that are in memory and not persisted."
    Gauge<1> DISK_BYTES "tidegate_spilled_bytes" ["supervisor"]
        "Bytes of spilled runs and unpublished segments on the local disk."
    Counter<1> PERSISTS "tidegate_persists_total" ["supervisor"]
        "Persists (spills) done."
    Histogram<1> PERSIST_TIME "tidegate_persist_seconds" ["supervisor"]
        "How long a persist took."
    Counter<1> PERSIST_WAITS "tidegate_persist_waits_total" ["supervisor"]
        "Times that reading waited for a persist to end."
    Histogram<1> CHECKPOINT_STALL "tidegate_checkpoint_stall_seconds" ["supervisor"]
        "How long a reader stood still for a checkpoint or the end of its group."
    Counter<2> CHECKPOINTS_WANTED "tidegate_checkpoints_wanted_total" ["supervisor", "trigger"]
        "Checkpoints that readers asked for, by trigger: rows, total-rows, bytes, period, disk."
    Histogram<1> MERGE_TIME "tidegate_merge_seconds" ["supervisor"]
        "How long merging a segment took."
    Histogram<1> UPLOAD_TIME "tidegate_upload_seconds" ["supervisor"]
        "How long uploading a segment took, restarts included."
    Counter<1> UPLOAD_BYTES "tidegate_upload_bytes_total" ["supervisor"]
        "Bytes of uploaded segments."
    Counter<2> PUBLISHES "tidegate_publishes_total" ["supervisor", "outcome"]
        "Publish calls, by outcome: published, already_published, not_yet, predecessor_lost, mismatch, retryable, fenced, bad_object."
    Histogram<1> PUBLISH_TIME "tidegate_publish_seconds" ["outcome"]
        "How long a publish call took, verification included."
    Counter<1> SEGMENTS "tidegate_segments_published_total" ["data_source"]
        "Segments published."
    Counter<1> SEGMENT_ROWS "tidegate_segment_rows_total" ["data_source"]
        "Rows in published segments."
    Counter<1> SEGMENT_BYTES "tidegate_segment_bytes_total" ["data_source"]
        "Bytes of published segments."
    Counter<1> ALLOCATIONS "tidegate_allocations_total" ["data_source"]
        "Segment ids given."
    Counter<1> SWEPT "tidegate_swept_total" ["what"]
        "Staged objects and open uploads that were swept, by what: object, upload, failed."
    Gauge<0> HANDOFFS_PENDING "tidegate_handoffs_pending" []
        "Published segments that the serving tier has not confirmed."
    Counter<1> HANDOFFS_SERVED "tidegate_handoffs_served_total" ["data_source"]
        "Segments that the serving tier confirmed."
    Histogram<0> HANDOFF_TIME "tidegate_handoff_seconds" []
        "From the first wait for a segment to its confirmation."
    Counter<1> HANDOFF_CHECKS "tidegate_handoff_checks_total" ["outcome"]
        "Checks of segments at the serving tier, by outcome: served, pending, failed."
    Counter<1> HANDOFF_ALERTS "tidegate_handoff_alerts_total" ["data_source"]
        "Segments that were not confirmed in time."
    Gauge<2> TASKS "tidegate_tasks" ["supervisor", "phase"]
        "Tasks by phase."
    Counter<2> TASKS_ENDED "tidegate_tasks_ended_total" ["supervisor", "outcome"]
        "Tasks that ended, by outcome: published, superseded, stopped, replaced, failed."
    Gauge<1> SUPERVISORS "tidegate_supervisors" ["state"]
        "Supervisors by state."
    Gauge<1> RUNNERS "tidegate_runners" ["state"]
        "Task-runners by state."
    Gauge<1> SLOTS "tidegate_slots" ["state"]
        "Slots of all live runners by state: used, free."
    Gauge<0> LEADER "tidegate_coordinator_leader" []
        "1 when this coordinator leads, 0 when it stands by."
    Gauge<0> LEADER_EPOCH "tidegate_coordinator_epoch" []
        "Epoch of the leader that this coordinator knows of, itself or another one."
    Counter<1> LEADER_CHANGES "tidegate_coordinator_leader_changes_total" ["what"]
        "How often this coordinator took the lead and left it: took, left."
}

/// The page for operators.
pub fn markdown() -> String {
    let rows = ALL.iter().map(|(name, kind, labels, help)| {
        let labels = labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect::<Vec<_>>()
            .join(", ");
        format!("| `{name}` | {} | {labels} | {help} |\n", kind.to_lowercase())
    });
    std::iter::once(INTRODUCTION.to_owned()).chain(rows).collect()
}

const INTRODUCTION: &str = "\
# Metrics

Printed from `shared/telemetry/src/families.rs`; a test keeps both the same (`TIDEGATE_WRITE_DOCS=1 cargo test -p
tidegate-telemetry` prints this page anew).

Each service answers `GET /metrics` in the Prometheus text format at the port after its gRPC port, and `GET /livez`
while the process lives (readiness is the standard gRPC health service). With `telemetry.otlp_endpoint` set, the same
numbers go to that collector once a minute; a histogram goes as `_sum` and `_count`. Every sample has the label
`service`; a family appears when there is something to show.

| name | kind | labels | meaning |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_docs_say_what_the_families_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == markdown(),
            "docs/metrics.md differs; print it with TIDEGATE_WRITE_DOCS=1"
        );
    }

    #[test]
    fn names_follow_the_usual_endings() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), ALL.len(), "a name stands once");
        for (name, kind, ..) in ALL {
            assert!(name.starts_with("tidegate_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == "Counter", "{name}");
            assert_eq!(name.ends_with("_seconds"), *kind == "Histogram", "{name}");
        }
    }
}
