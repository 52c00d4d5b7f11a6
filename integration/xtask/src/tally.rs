//! Counts the tests of a whole run from cargo test's closing lines, which pass through unchanged.

use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, Result};

/// Sums over all test programs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    /// Reads to the end, shows each line, and counts.
    pub(crate) fn of(output: impl Read, mut show: impl FnMut(&str)) -> Result<Self> {
        let mut tally = Self::default();
        // Not `lines()`: a test may print bytes that are no UTF-8.
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("cannot read the output of cargo test")?;
            let line = String::from_utf8_lossy(&line);
            tally.add(&line);
            show(&line);
        }
        Ok(tally)
    }

    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count.split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_of_all_programs_are_summed_and_every_line_is_shown() {
        let output = b"running 3 tests\n\
            test a ... ok\n\
            test result: ok. 21 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
            a line of a test: \xff\n\
            test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 5.27s\n";
        let mut shown = 0;
        let tally = Tally::of(&output[..], |_| shown += 1).unwrap();
        assert_eq!(
            tally,
            Tally {
                passed: 25,
                failed: 2,
                ignored: 1
            }
        );
        assert_eq!(shown, 5);
    }
}
