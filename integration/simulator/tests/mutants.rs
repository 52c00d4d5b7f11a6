//! Every mistake that is put in is found: by an invariant, or because nothing converges any more.

use tidegate_simulator::{Mutant, Options, run_many};

/// Seeds that are tried for each.
const SEEDS: u64 = 2_000;

#[test]
fn every_mutant_is_found_within_2_000_seeds() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        let options = Options {
            mutant: Some(*mutant),
            ..Options::default()
        };
        match run_many(0, SEEDS, options) {
            Ok(_) => survivors.push(mutant.name()),
            Err(failure) => println!("{mutant}: seed {}: {}", failure.seed, failure.what),
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:?}");
}
