//! Tests of the handoff machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_types::{DataSource, Interval, SegmentId, SegmentVersion, TimestampMillis};

use super::{Answer, HandoffAction, HandoffEvent, HandoffLimits, HandoffMachine};

const LIMITS: HandoffLimits = HandoffLimits {
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_millis(800),
    check_timeout: Duration::from_millis(500),
    alert_after: Some(Duration::from_secs(5)),
    checks_at_once: 64,
};

fn segment(number: u32) -> SegmentId {
    SegmentId {
        data_source: DataSource::new("wiki").unwrap(),
        interval: Interval::new(TimestampMillis(0), TimestampMillis(3_600_000)).unwrap(),
        version: SegmentVersion::new("v").unwrap(),
        partition_num: number,
    }
}

fn at(millis: i64) -> TimestampMillis {
    TimestampMillis(millis)
}

fn registered(number: u32, since: i64) -> HandoffEvent {
    HandoffEvent::Registered {
        segment: segment(number),
        since: at(since),
    }
}

fn checked(number: u32, answer: Answer) -> HandoffEvent {
    HandoffEvent::Checked {
        segment: segment(number),
        answer,
        detail: "said".into(),
    }
}

fn checks(actions: &[HandoffAction]) -> Vec<u32> {
    actions
        .iter()
        .filter_map(|action| match action {
            HandoffAction::Check { segment } => Some(segment.partition_num),
            _ => None,
        })
        .collect()
}

#[test]
fn a_segment_is_checked_at_once_and_then_at_doubling_waits_up_to_the_longest() {
    let mut machine = HandoffMachine::new(LIMITS);
    assert_eq!(checks(&machine.on(registered(1, 0), at(0))), [1]);
    let mut now = 0;
    for wait in [100, 200, 400, 800, 800, 800] {
        let actions = machine.on(checked(1, Answer::NotServed), at(now));
        assert_eq!(
            actions,
            [HandoffAction::RecordAttempt {
                segment: segment(1),
                detail: "said".into()
            }]
        );
        assert_eq!(machine.next_at(), Some(at(now + wait)));
        assert!(machine.on(HandoffEvent::Tick, at(now + wait - 1)).is_empty());
        now += wait;
        assert_eq!(checks(&machine.on(HandoffEvent::Tick, at(now))), [1]);
    }
}

#[test]
fn served_is_made_durable_before_anybody_is_told_and_told_once() {
    let mut machine = HandoffMachine::new(LIMITS);
    machine.on(registered(1, 0), at(10));
    let marked = machine.on(checked(1, Answer::Served), at(20));
    assert_eq!(
        marked,
        [HandoffAction::MarkServed {
            segment: segment(1),
            at: at(20),
            detail: "said".into()
        }]
    );
    assert!(machine.is_pending(&segment(1)));
    assert!(
        machine.on(checked(1, Answer::Served), at(21)).is_empty(),
        "a second answer is nothing new"
    );
    let told = machine.on(HandoffEvent::Recorded { segment: segment(1) }, at(30));
    assert_eq!(
        told,
        [HandoffAction::Tell {
            segment: segment(1),
            waited: Duration::from_millis(30)
        }]
    );
    assert!(machine.is_empty() && machine.next_at().is_none());
    assert!(
        machine
            .on(HandoffEvent::Recorded { segment: segment(1) }, at(31))
            .is_empty()
    );
    assert!(
        machine.on(HandoffEvent::Tick, at(100_000)).is_empty(),
        "no alert for a served one"
    );
}

#[test]
fn a_record_that_fails_is_tried_again_through_another_check() {
    let mut machine = HandoffMachine::new(LIMITS);
    machine.on(registered(1, 0), at(0));
    machine.on(checked(1, Answer::Served), at(0));
    assert!(
        machine
            .on(HandoffEvent::NotRecorded { segment: segment(1) }, at(0))
            .is_empty()
    );
    assert_eq!(checks(&machine.on(HandoffEvent::Tick, at(100))), [1]);
}

#[test]
fn a_check_without_an_answer_is_made_again_and_its_late_answer_counts() {
    let mut machine = HandoffMachine::new(LIMITS);
    machine.on(registered(1, 0), at(0));
    let late = machine.on(HandoffEvent::Tick, at(500));
    assert!(
        matches!(&late[..], [HandoffAction::RecordAttempt { detail, .. }] if detail.contains("500ms")),
        "{late:?}"
    );
    assert!(
        machine.on(checked(1, Answer::Failed), at(550)).is_empty(),
        "counted already"
    );
    let served = machine.on(checked(1, Answer::Served), at(560));
    assert!(
        matches!(&served[..], [HandoffAction::MarkServed { .. }]),
        "{served:?}"
    );
}

#[test]
fn a_time_out_is_an_alert_once_and_the_segment_is_checked_on() {
    let mut machine = HandoffMachine::new(LIMITS);
    machine.on(registered(1, -4_900), at(0));
    let actions = machine.on(checked(1, Answer::NotServed), at(100));
    assert_eq!(
        actions[1],
        HandoffAction::Alert {
            segment: segment(1),
            waited: Duration::from_secs(5)
        }
    );
    let later = machine.on(HandoffEvent::Tick, at(60_000));
    assert_eq!(checks(&later), [1]);
    assert!(
        !later
            .iter()
            .any(|action| matches!(action, HandoffAction::Alert { .. }))
    );
    let mut patient = HandoffMachine::new(HandoffLimits {
        alert_after: None,
        ..LIMITS
    });
    patient.on(registered(1, 0), at(0));
    assert!(
        !patient
            .on(HandoffEvent::Tick, at(i64::MAX))
            .iter()
            .any(|a| matches!(a, HandoffAction::Alert { .. }))
    );
}

#[test]
fn somebody_who_waits_brings_the_check_forward_but_cannot_hammer_the_tier() {
    let mut machine = HandoffMachine::new(LIMITS);
    machine.on(registered(1, 0), at(0));
    for now in [0, 100, 300, 700] {
        machine.on(HandoffEvent::Tick, at(now));
        machine.on(checked(1, Answer::NotServed), at(now));
    }
    assert_eq!(machine.next_at(), Some(at(1500)));
    let hurried = |machine: &mut HandoffMachine, now| {
        checks(&machine.on(HandoffEvent::Awaited { segment: segment(1) }, at(now)))
    };
    assert!(hurried(&mut machine, 750).is_empty());
    assert_eq!(
        machine.next_at(),
        Some(at(800)),
        "not before the first wait after the last check"
    );
    assert_eq!(hurried(&mut machine, 900), [1]);
    assert!(hurried(&mut machine, 901).is_empty(), "a check is under way");
    machine.on(checked(1, Answer::NotServed), at(910));
    assert_eq!(machine.next_at(), Some(at(1010)), "the back-off begins anew");
    assert!(checks(&machine.on(HandoffEvent::Awaited { segment: segment(9) }, at(910))).is_empty());
}

#[test]
fn no_more_checks_than_allowed_are_under_way_and_the_longest_due_goes_first() {
    let mut machine = HandoffMachine::new(HandoffLimits {
        checks_at_once: 2,
        ..LIMITS
    });
    let started: Vec<_> = (0..5)
        .flat_map(|n| checks(&machine.on(registered(n, 0), at(i64::from(n)))))
        .collect();
    assert_eq!(started, [0, 1]);
    assert_eq!(
        machine.next_at(),
        Some(at(500)),
        "a due one that cannot start wakes nobody"
    );
    assert_eq!(checks(&machine.on(checked(1, Answer::NotServed), at(10))), [2]);
    assert_eq!(checks(&machine.on(HandoffEvent::Tick, at(510))), [3, 4]);
}

/// What a world does with each check of a segment: answers after a delay, or never.
#[derive(Debug, Clone)]
struct Behaviour {
    registered_at: i64,
    /// (delay until the answer, answer) of each check in turn; `None` = never answers. The last one repeats.
    answers: Vec<Option<(i64, Answer)>>,
    record_fails: u8,
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    let answer = prop_oneof![
        4 => (0..400_i64, prop_oneof![Just(Answer::NotServed), Just(Answer::Failed), Just(Answer::Served)]).prop_map(Some),
        1 => (500..900_i64, Just(Answer::Served)).prop_map(Some),
        1 => Just(None),
    ];
    (0..500_i64, prop::collection::vec(answer, 1..6), 0..3_u8).prop_map(
        |(registered_at, answers, record_fails)| Behaviour {
            registered_at,
            answers,
            record_fails,
        },
    )
}

/// Runs the machine in a world of its own time; gives what happened as (time, action).
fn run(limits: HandoffLimits, world: &BTreeMap<u32, Behaviour>, end: i64) -> Vec<(i64, HandoffAction)> {
    let mut machine = HandoffMachine::new(limits);
    let mut coming: BTreeMap<i64, Vec<HandoffEvent>> = BTreeMap::new();
    for (number, behaviour) in world {
        coming
            .entry(behaviour.registered_at)
            .or_default()
            .push(registered(*number, behaviour.registered_at));
    }
    let (mut asked, mut fails) = (BTreeMap::<u32, usize>::new(), BTreeMap::<u32, u8>::new());
    let mut log = Vec::new();
    let mut now = 0;
    while now <= end {
        let mut events = coming.remove(&now).unwrap_or_default();
        if events.is_empty() {
            events.push(HandoffEvent::Tick);
        }
        for event in events {
            for action in machine.on(event, at(now)) {
                match &action {
                    HandoffAction::Check { segment } => {
                        let times = asked.entry(segment.partition_num).or_default();
                        let answers = &world[&segment.partition_num].answers;
                        if let Some((delay, answer)) = answers[(*times).min(answers.len() - 1)] {
                            coming
                                .entry(now + delay.max(1))
                                .or_default()
                                .push(checked(segment.partition_num, answer));
                        }
                        *times += 1;
                    }
                    HandoffAction::MarkServed { segment, .. } => {
                        let failed = fails.entry(segment.partition_num).or_default();
                        let segment = segment.clone();
                        let event = if *failed < world[&segment.partition_num].record_fails {
                            *failed += 1;
                            HandoffEvent::NotRecorded { segment }
                        } else {
                            HandoffEvent::Recorded { segment }
                        };
                        coming.entry(now + 1).or_default().push(event);
                    }
                    _ => {}
                }
                log.push((now, action));
            }
        }
        let next = machine.next_at().map_or(i64::MAX, |next| next.0.max(now + 1));
        now = coming.keys().next().copied().unwrap_or(i64::MAX).min(next);
    }
    log
}

fn of(log: &[(i64, HandoffAction)], number: u32) -> Vec<(i64, HandoffAction)> {
    let about = |action: &HandoffAction| match action {
        HandoffAction::Check { segment }
        | HandoffAction::RecordAttempt { segment, .. }
        | HandoffAction::MarkServed { segment, .. }
        | HandoffAction::Tell { segment, .. }
        | HandoffAction::Alert { segment, .. } => segment.partition_num,
    };
    log.iter()
        .filter(|(_, action)| about(action) == number)
        .cloned()
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What happens to a segment depends on nothing but itself, whatever the others do.
    #[test]
    fn no_segment_delays_another(world in prop::collection::btree_map(0..12_u32, behaviour(), 1..12)) {
        let together = run(LIMITS, &world, 20_000);
        for (number, behaviour) in &world {
            let alone = run(LIMITS, &BTreeMap::from([(*number, behaviour.clone())]), 20_000);
            prop_assert_eq!(of(&together, *number), of(&alone, *number));
        }
    }

    /// Served is durable before it is told, it is told once, an alert comes at most once, and a segment whose last
    /// answer is "served" ends served, also when there is room for one check only.
    #[test]
    fn a_confirmed_segment_is_told_once_after_it_is_recorded(
        world in prop::collection::btree_map(0..6_u32, behaviour(), 1..6),
        checks_at_once in 1..4_usize,
    ) {
        let log = run(HandoffLimits { checks_at_once, ..LIMITS }, &world, 200_000);
        for (number, behaviour) in &world {
            let mine = of(&log, *number);
            let times = |wanted: fn(&HandoffAction) -> bool| -> Vec<i64> {
                mine.iter().filter(|(_, action)| wanted(action)).map(|(time, _)| *time).collect()
            };
            let told = times(|action| matches!(action, HandoffAction::Tell { .. }));
            let marked = times(|action| matches!(action, HandoffAction::MarkServed { .. }));
            prop_assert!(told.len() <= 1);
            let alerts = times(|action| matches!(action, HandoffAction::Alert { .. }));
            prop_assert!(alerts.len() <= 1);
            if let Some(told) = told.first() {
                prop_assert!(marked.iter().any(|marked| marked < told));
                prop_assert_eq!(mine.last().map(|(time, _)| time), Some(told), "nothing comes after it");
            }
            if matches!(behaviour.answers.last(), Some(Some((_, Answer::Served)))) {
                prop_assert_eq!(told.len(), 1);
            }
            let waits: BTreeSet<_> = times(|action| matches!(action, HandoffAction::Check { .. }))
                .windows(2)
                .map(|pair| pair[1] - pair[0])
                .collect();
            prop_assert!(waits.first().is_none_or(|wait| *wait >= 100), "{:?}", waits);
        }
    }
}
