//! Seeds of every run, and those that failed once.

use tidegate_simulator::{Options, run, run_many};

#[test]
fn a_seed_is_the_same_run_every_time() {
    let options = Options::default();
    assert_eq!(run(11, options).unwrap(), run(11, options).unwrap());
}

#[test]
fn the_first_300_seeds_keep_every_invariant_and_converge_and_meet_every_fault() {
    let coverage = run_many(0, 300, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(coverage.missing(), Vec::<&str>::new(), "{coverage:#?}");
}
