//! Which keys of a record are wanted. Keys mostly come in the order of the record before, so the guess is tried
//! before the table.

use std::collections::BTreeSet;

use hashbrown::HashMap;

type Table = HashMap<Box<str>, u32, ahash::RandomState>;

/// What a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// Field with this number.
    Field(u32),
    /// Nothing wants it.
    Unwanted,
    /// A discovered dimension that was met before.
    Found(u32),
    /// A key that may become a discovered dimension.
    New,
}

#[derive(Debug)]
pub(crate) struct Fields {
    wanted: Table,
    /// Names of discovered dimensions, in order of discovery.
    pub(crate) found: Vec<Box<str>>,
    found_table: Table,
    discover: bool,
    excluded: BTreeSet<String>,
    guesses: Vec<(Box<str>, Key)>,
}

impl Fields {
    pub(crate) fn new(discover: bool, excluded: BTreeSet<String>) -> Self {
        Self {
            wanted: Table::default(),
            found: Vec::new(),
            found_table: Table::default(),
            discover,
            excluded,
            guesses: Vec::new(),
        }
    }

    /// The number of a field; the same name has one number.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        let next = u32::try_from(self.wanted.len()).unwrap_or(u32::MAX);
        *self.wanted.entry(name.into()).or_insert(next)
    }

    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// What the `position`-th key of a record stands for.
    pub(crate) fn look_up(&mut self, position: usize, key: &str) -> Key {
        if let Some((guess, kind)) = self.guesses.get(position)
            && **guess == *key
        {
            return *kind;
        }
        let kind = if let Some(field) = self.wanted.get(key) {
            Key::Field(*field)
        } else if !self.discover || self.excluded.contains(key) {
            Key::Unwanted
        } else if let Some(found) = self.found_table.get(key) {
            Key::Found(*found)
        } else {
            return Key::New;
        };
        // Records with thousands of keys are not worth remembering.
        let room = position == self.guesses.len() && position < 256;
        match self.guesses.get_mut(position) {
            Some(guess) => *guess = (key.into(), kind),
            None if room => self.guesses.push((key.into(), kind)),
            None => {}
        }
        kind
    }

    /// A discovered dimension, once a row that has it is accepted.
    pub(crate) fn register(&mut self, name: &str) -> u32 {
        let next = u32::try_from(self.found.len()).unwrap_or(u32::MAX);
        *self.found_table.entry(name.into()).or_insert_with(|| {
            self.found.push(name.into());
            next
        })
    }
}
