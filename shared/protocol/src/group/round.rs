//! The round that ends a group, or its open sequence: all replicas stand still, the highest offsets of those that
//! answered become the end. One deadline for the whole round, no nested retries (D33).

use std::collections::BTreeMap;

use tidegate_types::{EndOffsets, PartitionOffsets, StartOffsets, TaskId, TimestampMillis};

use crate::mutation::{Mutation, is};

/// What is known of one replica in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// The pause is on its way.
    Asked,
    /// It took the pause and does not stand yet; asked again at this time.
    Accepted { again: TimestampMillis },
    /// No answer; asked again at this time.
    Silent { again: TimestampMillis },
    /// It stands still here.
    Standing(PartitionOffsets),
    /// It cannot take part: it is replaced.
    Out { why: String },
}

/// What a round is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The group reads no further.
    Finish,
    /// The open sequence ends, the next one begins.
    Checkpoint,
}

/// A round in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    pub purpose: Purpose,
    pub deadline: TimestampMillis,
    pub asks: BTreeMap<TaskId, Ask>,
}

/// What a round comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Wait on.
    Open,
    /// The end; these replicas did not take part and are replaced.
    Decide { end: EndOffsets, out: Vec<TaskId> },
    /// Nobody answered: no decision. These replicas are replaced.
    NoAnswer { out: Vec<TaskId> },
}

impl Round {
    /// Looks at the answers. `start` is where the open sequence begins. `starting` tells which replicas are still restoring: a pause is recorded by them, and
    /// the round goes on without their offsets (D57).
    pub fn verdict(
        &self,
        now: TimestampMillis,
        start: &StartOffsets,
        starting: impl Fn(&TaskId) -> bool,
    ) -> Verdict {
        let late = now >= self.deadline;
        let mut end: Option<EndOffsets> = None;
        let mut waiting = false;
        let mut out = Vec::new();
        for (task, ask) in &self.asks {
            match ask {
                Ask::Standing(next) => {
                    let highest = end.as_ref().unwrap_or(start);
                    end = Some(if is(Mutation::LowestOffset) && end.is_some() {
                        highest
                            .iter()
                            .map(|(partition, at)| {
                                (partition, next.get(partition).map_or(at, |next| next.min(at)))
                            })
                            .collect()
                    } else {
                        highest.max(next)
                    });
                }
                Ask::Accepted { .. } if starting(task) => {}
                Ask::Accepted { .. } | Ask::Asked | Ask::Silent { .. } if !late => waiting = true,
                // It is alive and about to stand: it takes the end when it does.
                Ask::Accepted { .. } => {}
                Ask::Asked | Ask::Silent { .. } | Ask::Out { .. } => out.push(task.clone()),
            }
        }
        match end {
            _ if waiting => Verdict::Open,
            Some(end) => Verdict::Decide { end, out },
            None if late || out.len() == self.asks.len() => Verdict::NoAnswer { out },
            None => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMillis = TimestampMillis(1_000);

    fn task(name: &str) -> TaskId {
        TaskId::new(name).unwrap()
    }

    fn round(asks: Vec<Ask>, deadline: i64) -> Round {
        let asks = asks
            .into_iter()
            .enumerate()
            .map(|(n, ask)| (task(&format!("t{n}")), ask))
            .collect();
        Round {
            purpose: Purpose::Finish,
            deadline: TimestampMillis(deadline),
            asks,
        }
    }

    fn standing(p0: i64, p1: i64) -> Ask {
        Ask::Standing(PartitionOffsets::from([(0, p0), (1, p1)]))
    }

    #[test]
    fn what_a_round_comes_to() {
        let start = StartOffsets::from([(0, 10), (1, 20)]);
        let again = TimestampMillis(1_100);
        let out = || Ask::Out { why: "gone".into() };
        let decide = |p0, p1, out: &[&str]| Verdict::Decide {
            end: EndOffsets::from([(0, p0), (1, p1)]),
            out: out.iter().map(|name| task(name)).collect(),
        };
        let early = 2_000;
        let late = 1_000;
        for (asks, deadline, expected) in [
            // the highest of each partition, whoever had it
            (
                vec![standing(15, 20), standing(12, 29)],
                early,
                decide(15, 29, &[]),
            ),
            (vec![standing(15, 20), Ask::Asked], early, Verdict::Open),
            (
                vec![standing(15, 20), Ask::Silent { again }],
                late,
                decide(15, 20, &["t1"]),
            ),
            (vec![standing(15, 20), out()], early, decide(15, 20, &["t1"])),
            // alive but busy (a long persist): waited for up to the deadline, never replaced for that (B35)
            (
                vec![standing(15, 20), Ask::Accepted { again }],
                early,
                Verdict::Open,
            ),
            (
                vec![standing(15, 20), Ask::Accepted { again }],
                late,
                decide(15, 20, &[]),
            ),
            // no answer at all: no decision
            (
                vec![Ask::Silent { again }, out()],
                late,
                Verdict::NoAnswer {
                    out: vec![task("t0"), task("t1")],
                },
            ),
            (
                vec![out()],
                early,
                Verdict::NoAnswer {
                    out: vec![task("t0")],
                },
            ),
            (
                vec![Ask::Accepted { again }],
                late,
                Verdict::NoAnswer { out: vec![] },
            ),
        ] {
            let round = round(asks, deadline);
            assert_eq!(round.verdict(NOW, &start, |_| false), expected, "{round:?}");
        }
    }

    #[test]
    fn a_replica_that_is_still_starting_is_not_waited_for() {
        let start = StartOffsets::from([(0, 10), (1, 20)]);
        let round = round(vec![standing(15, 20), Ask::Accepted { again: NOW }], 2_000);
        let verdict = round.verdict(NOW, &start, |id| id.as_str() == "t1");
        assert_eq!(
            verdict,
            Verdict::Decide {
                end: EndOffsets::from([(0, 15), (1, 20)]),
                out: vec![]
            }
        );
        let alone = Round {
            asks: [(task("t1"), Ask::Accepted { again: NOW })].into(),
            ..round
        };
        assert_eq!(alone.verdict(NOW, &start, |_| true), Verdict::Open);
    }
}
