//! A small world with successive groups, replicas that ask again and again in any order, groups that are given
//! up, and resets: whatever happens, what is published tiles the log (I1, I2, I4).

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_types::PartitionOffsets;

use super::tests::{committed, group, request};
use super::*;

/// What may happen next; numbers pick a group or a partition modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    /// Some replica of a group asks to publish.
    Ask(usize),
    /// The coordinator gives a group up.
    End(usize),
    /// The offsets of the partitions are reset to where they are, and new groups are made from there.
    Reset,
    /// A new group reads on from where the last one ended.
    RollOver([u8; 2]),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<usize>().prop_map(Step::Ask),
        1 => any::<usize>().prop_map(Step::End),
        1 => Just(Step::Reset),
        3 => any::<[u8; 2]>().prop_map(Step::RollOver),
    ]
}

struct World {
    generation: Generation,
    committed: PartitionOffsets,
    groups: Vec<(RegisteredGroup, PublishRequest)>,
    published: BTreeMap<SequenceName, PublishedSequence>,
    /// Every range that was committed, in order.
    ranges: Vec<(PartitionOffsets, PartitionOffsets)>,
}

impl World {
    fn new() -> Self {
        Self {
            generation: Generation(0),
            committed: PartitionOffsets::from([(0, 10), (1, 20)]),
            groups: Vec::new(),
            published: BTreeMap::new(),
            ranges: Vec::new(),
        }
    }

    fn roll_over(&mut self, widths: [u8; 2]) {
        let last = self
            .groups
            .iter()
            .rev()
            .find(|(group, _)| group.generation == self.generation && !group.ended);
        let start = last.map_or(self.committed.clone(), |(_, request)| request.end());
        let end = start
            .iter()
            .zip(widths)
            .map(|((partition, offset), width)| (partition, Offset(offset.0 + i64::from(width % 4))))
            .collect();
        let name = format!("g{}", self.groups.len());
        let group = RegisteredGroup {
            generation: self.generation,
            ..group(&name, &start)
        };
        let request = request(&group, &end);
        self.groups.push((group, request));
    }

    fn state(&self, asking: &RegisteredGroup) -> PublishState {
        PublishState {
            generation: Some(self.generation),
            committed: committed(&self.committed),
            group: Some(asking.clone()),
            open_groups: self
                .groups
                .iter()
                .map(|(group, _)| group)
                .filter(|group| !group.ended && group.generation == self.generation)
                .cloned()
                .collect(),
            published: self.published.clone(),
            ..PublishState::default()
        }
    }

    fn ask(&mut self, index: usize) -> PublishDecision {
        let (group, request) = self.groups[index].clone();
        let decision = decide(&self.state(&group), &request);
        if let PublishDecision::Publish { offsets } = &decision {
            let moved: PartitionOffsets = request
                .start()
                .iter()
                .filter(|(p, _)| offsets.get(*p).is_some())
                .collect();
            self.ranges.push((moved, offsets.clone()));
            self.committed = self.committed.plus(offsets);
            for sequence in &request.sequences {
                let row = PublishedSequence {
                    generation: request.generation,
                    end: sequence.end.clone(),
                };
                assert!(
                    self.published.insert(sequence.name.clone(), row).is_none(),
                    "published twice"
                );
            }
        }
        decision
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_published_ranges_tile_the_log(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        world.roll_over([3, 3]);
        for step in steps {
            match step {
                Step::Ask(pick) => {
                    let index = pick % world.groups.len();
                    let before = world.committed.clone();
                    let decision = world.ask(index);
                    let (group, request) = &world.groups[index];
                    // Fenced groups never move anything; and nothing but a publish moves anything.
                    if group.ended || group.generation != world.generation {
                        prop_assert!(matches!(decision, PublishDecision::Fenced(_) | PublishDecision::AlreadyPublished));
                    }
                    if !matches!(decision, PublishDecision::Publish { .. }) {
                        prop_assert_eq!(&before, &world.committed);
                    }
                    // Asking again after a publish is success, without effect (I11, B43).
                    if matches!(decision, PublishDecision::Publish { .. }) {
                        for (partition, end) in request.end().iter().filter(|(p, end)| request.start().get(*p) != Some(*end)) {
                            prop_assert_eq!(world.committed.get(partition), Some(end));
                        }
                        prop_assert_eq!(world.ask(index), PublishDecision::AlreadyPublished);
                    }
                }
                Step::End(pick) => {
                    let index = pick % world.groups.len();
                    world.groups[index].0.ended = true;
                }
                Step::Reset => {
                    world.generation = world.generation.next();
                    world.roll_over([1, 2]);
                }
                Step::RollOver(widths) => world.roll_over(widths),
            }
        }
        let mut position = PartitionOffsets::from([(0, 10), (1, 20)]);
        for (start, end) in &world.ranges {
            for (partition, offset) in start.iter() {
                prop_assert_eq!(position.get(partition), Some(offset));
            }
            position = position.plus(end);
        }
        prop_assert_eq!(position, world.committed);
    }

    #[test]
    fn groups_that_nobody_gives_up_all_get_published_whatever_the_order(
        widths in prop::collection::vec(any::<[u8; 2]>(), 1..8),
        order in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let mut world = World::new();
        for widths in &widths {
            world.roll_over(*widths);
        }
        for pick in order {
            let decision = world.ask(pick % widths.len());
            prop_assert!(
                matches!(
                    decision,
                    PublishDecision::Publish { .. } | PublishDecision::AlreadyPublished | PublishDecision::NotYet { .. }
                ),
                "{decision:?}"
            );
        }
        // Each in turn: nobody waits for ever.
        for index in 0..widths.len() {
            let decision = world.ask(index);
            prop_assert!(
                matches!(decision, PublishDecision::Publish { .. } | PublishDecision::AlreadyPublished),
                "{decision:?}"
            );
        }
        prop_assert_eq!(&world.committed, &world.groups[widths.len() - 1].1.end());
    }

    #[test]
    fn only_exactly_equal_offsets_publish(
        stored in prop::collection::vec(0i64..6, 3), asked in prop::collection::vec(0i64..6, 3), width in 1i64..4,
    ) {
        let offsets = |values: &[i64], add: i64| -> PartitionOffsets {
            values.iter().zip(0..).map(|(value, index)| (PartitionId(index), Offset(value + add))).collect()
        };
        let asking = group("a", &offsets(&asked, 0));
        let state = super::tests::state(&offsets(&stored, 0), &[&asking], &asking);
        let decision = decide(&state, &request(&asking, &offsets(&asked, width)));
        let equal = stored == asked;
        prop_assert_eq!(matches!(decision, PublishDecision::Publish { .. }), equal, "{:?}", decision);
        let overlaps = stored.iter().zip(&asked).any(|(stored, asked)| asked < stored);
        prop_assert_eq!(matches!(decision, PublishDecision::Mismatch(_)), overlaps, "{:?}", decision);
    }
}
