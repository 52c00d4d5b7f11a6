//! Seeds of every run, and those that failed once.

use tidegate_simulator::{Options, run, run_many};

#[test]
fn a_seed_is_the_same_run_every_time() {
    let options = Options::default();
    assert_eq!(run(11, options).unwrap(), run(11, options).unwrap());
}

#[test]
fn the_first_2_000_seeds_keep_every_invariant_and_converge_and_meet_every_fault() {
    let coverage = run_many(0, 2_000, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(coverage.missing(), Vec::<&str>::new(), "{coverage:#?}");
}

/// Hundreds of uploads that ended in one millisecond took turns so clumsily that the steps ran out.
#[test]
fn seed_104_many_uploads_end_at_once() {
    run(104, Options::default()).unwrap();
}

/// A registration that was delayed on its way replaced a newer one and left a task without a token.
#[test]
fn seed_236_a_registration_is_overtaken() {
    run(236, Options::default()).unwrap();
}

/// A group between two others was over and forgotten while the first still waited for its handoff.
#[test]
fn seed_386_a_group_is_over_before_its_elder() {
    run(386, Options::default()).unwrap();
}

/// Rows were lost while many sequences waited to be published: the reader was held back although it was needed.
#[test]
fn seed_1441_rows_are_lost_while_many_sequences_wait() {
    run(1441, Options::default()).unwrap();
}

/// A group that ended with nothing new was committed before its tasks had heard of the end, and left them standing.
#[test]
fn seed_15_a_group_ends_with_an_empty_sequence() {
    run(15, Options::default()).unwrap();
}
