//! Tells a silent consumer from an idle topic (B27). Pure: the clock is an argument.
//!
//! A partition without progress for `stall_after` is asked about. If the log then goes further than the reader and
//! the reader still has not moved at the next question, the consumer is to be rebuilt. After a rebuild the interval
//! doubles until there is progress: a long run of aborted records looks silent too, and must be given the time to
//! pass (B17).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_types::{Offset, PartitionId, PartitionOffsets};

const MOST_DOUBLINGS: u32 = 7;

#[derive(Debug)]
pub(crate) struct Watchdog {
    stall_after: Duration,
    doublings: u32,
    partitions: BTreeMap<PartitionId, Watch>,
}

#[derive(Debug, Clone, Copy)]
struct Watch {
    /// Last progress, or last time that silence was found to be right.
    since: Instant,
    /// Where the reader was when it was first found behind a log that goes further.
    behind_at: Option<Offset>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    Rebuild,
}

impl Watchdog {
    pub(crate) fn new(stall_after: Duration) -> Self {
        Self {
            stall_after,
            doublings: 0,
            partitions: BTreeMap::new(),
        }
    }

    pub(crate) fn watch(&mut self, partition: PartitionId, now: Instant) {
        self.partitions.insert(
            partition,
            Watch {
                since: now,
                behind_at: None,
            },
        );
    }

    pub(crate) fn unwatch(&mut self, partition: PartitionId) {
        self.partitions.remove(&partition);
    }

    /// The partition moved on.
    pub(crate) fn progress(&mut self, partition: PartitionId, now: Instant) {
        self.doublings = 0;
        self.excuse(partition, now);
    }

    /// The partition stood still for a reason that is not the consumer's.
    pub(crate) fn excuse(&mut self, partition: PartitionId, now: Instant) {
        if let Some(watch) = self.partitions.get_mut(&partition) {
            *watch = Watch {
                since: now,
                behind_at: None,
            };
        }
    }

    pub(crate) fn excuse_all(&mut self, now: Instant) {
        for watch in self.partitions.values_mut() {
            *watch = Watch {
                since: now,
                behind_at: None,
            };
        }
    }

    /// Partitions that have been silent for too long to believe without asking.
    pub(crate) fn silent(&self, now: Instant) -> Vec<PartitionId> {
        let patience = self.stall_after * 2_u32.pow(self.doublings);
        self.partitions
            .iter()
            .filter(|(_, watch)| now.saturating_duration_since(watch.since) >= patience)
            .map(|(partition, _)| *partition)
            .collect()
    }

    /// The answer of the broker for silent partitions, beside where the reader is.
    pub(crate) fn judge(
        &mut self,
        latest: &PartitionOffsets,
        next: &PartitionOffsets,
        now: Instant,
    ) -> Verdict {
        let mut verdict = Verdict::Fine;
        for (partition, watch) in &mut self.partitions {
            let (Some(latest), Some(next)) = (latest.get(*partition), next.get(*partition)) else {
                continue;
            };
            if latest <= next {
                *watch = Watch {
                    since: now,
                    behind_at: None,
                };
            } else if watch.behind_at == Some(next) {
                verdict = Verdict::Rebuild;
            } else {
                *watch = Watch {
                    since: now,
                    behind_at: Some(next),
                };
            }
        }
        if verdict == Verdict::Rebuild {
            self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
            self.excuse_all(now);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(0);

    fn at(offset: i64) -> PartitionOffsets {
        PartitionOffsets::from([(0, offset)])
    }

    fn watchdog(now: Instant) -> Watchdog {
        let mut watchdog = Watchdog::new(Duration::from_secs(10));
        watchdog.watch(P, now);
        watchdog
    }

    #[test]
    fn b27_lag_without_progress_seen_twice_is_a_rebuild() {
        let start = Instant::now();
        let mut dog = watchdog(start);
        assert!(dog.silent(start + Duration::from_secs(9)).is_empty());
        let first = start + Duration::from_secs(10);
        assert_eq!(dog.silent(first), [P]);
        assert_eq!(dog.judge(&at(7), &at(5), first), Verdict::Fine);
        let second = first + Duration::from_secs(10);
        assert_eq!(dog.silent(second), [P]);
        assert_eq!(dog.judge(&at(7), &at(5), second), Verdict::Rebuild);
    }

    #[test]
    fn an_idle_topic_is_left_alone() {
        let start = Instant::now();
        let mut dog = watchdog(start);
        for round in 1..20 {
            let now = start + Duration::from_secs(10 * round);
            assert_eq!(dog.silent(now), [P]);
            assert_eq!(dog.judge(&at(5), &at(5), now), Verdict::Fine);
        }
    }

    #[test]
    fn progress_between_two_questions_is_no_stall() {
        let start = Instant::now();
        let mut dog = watchdog(start);
        assert_eq!(
            dog.judge(&at(7), &at(5), start + Duration::from_secs(10)),
            Verdict::Fine
        );
        dog.progress(P, start + Duration::from_secs(11));
        assert!(dog.silent(start + Duration::from_secs(20)).is_empty());
        assert_eq!(
            dog.judge(&at(9), &at(6), start + Duration::from_secs(21)),
            Verdict::Fine
        );
    }

    #[test]
    fn b17_patience_doubles_after_each_rebuild_without_progress() {
        let start = Instant::now();
        let mut dog = watchdog(start);
        dog.judge(&at(7), &at(5), start);
        assert_eq!(dog.judge(&at(7), &at(5), start), Verdict::Rebuild);
        assert!(dog.silent(start + Duration::from_secs(19)).is_empty());
        assert_eq!(dog.silent(start + Duration::from_secs(20)), [P]);
        dog.progress(P, start);
        assert_eq!(dog.silent(start + Duration::from_secs(10)), [P]);
    }
}
