//! Text values of a column, each stored once. Codes are given in order of first sight.

use hashbrown::HashTable;

/// Code of null. Other codes start at 1.
pub(crate) const NULL: u32 = 0;

#[derive(Debug)]
pub(crate) struct Dictionary {
    text: String,
    /// End of each value in `text`; the value of code c ends at `ends[c]`, `ends[0]` is 0.
    ends: Vec<usize>,
    table: HashTable<Entry>,
    hasher: ahash::RandomState,
    /// Code of the value before: neighbours are often equal.
    last: u32,
}

/// The hash is kept, so that a growing table does not read the texts again.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    code: u32,
}

impl Entry {
    /// The table takes the place from the low bits and a mark from the high ones.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            text: String::new(),
            ends: vec![0],
            table: HashTable::new(),
            hasher: ahash::RandomState::new(),
            last: NULL,
        }
    }
}

impl Dictionary {
    #[inline]
    pub(crate) fn code(&mut self, value: &str) -> u32 {
        if self.last != NULL && bytes(&self.text, &self.ends, self.last) == value.as_bytes() {
            return self.last;
        }
        self.last = self.look_up(value);
        self.last
    }

    fn look_up(&mut self, value: &str) -> u32 {
        let Self {
            text, ends, table, ..
        } = self;
        let hash = self.hasher.hash_one(value.as_bytes()) as u32;
        let same = |entry: &Entry| entry.hash == hash && bytes(text, ends, entry.code) == value.as_bytes();
        if let Some(entry) = table.find(Entry::spread(hash), same) {
            return entry.code;
        }
        let code = ends.len() as u32;
        text.push_str(value);
        ends.push(text.len());
        table.insert_unique(Entry::spread(hash), Entry { hash, code }, |entry| {
            Entry::spread(entry.hash)
        });
        code
    }

    /// Bytes of a value; null has none.
    #[inline]
    pub(crate) fn length(&self, code: u32) -> usize {
        bytes(&self.text, &self.ends, code).len()
    }

    /// Order of two codes by their texts, null first.
    pub(crate) fn compare(&self, a: u32, b: u32) -> std::cmp::Ordering {
        let text = |code| (code != NULL).then(|| bytes(&self.text, &self.ends, code));
        text(a).cmp(&text(b))
    }

    pub(crate) fn value(&self, code: u32) -> Option<&str> {
        (code != NULL).then(|| slice(&self.text, &self.ends, code))
    }

    /// Values, without null.
    pub(crate) fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// Place of each code in the order of the texts; null is 0.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut codes: Vec<u32> = (1..self.ends.len() as u32).collect();
        codes.sort_unstable_by(|a, b| {
            slice(&self.text, &self.ends, *a).cmp(slice(&self.text, &self.ends, *b))
        });
        let mut ranks = vec![0; self.ends.len()];
        for (place, code) in codes.into_iter().enumerate() {
            ranks[code as usize] = place as u32 + 1;
        }
        ranks
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.table.capacity() * (size_of::<Entry>() + 1)
    }
}

#[inline]
fn range(ends: &[usize], code: u32) -> std::ops::Range<usize> {
    let code = code as usize;
    match (
        code.checked_sub(1).and_then(|before| ends.get(before)),
        ends.get(code),
    ) {
        (Some(start), Some(end)) => *start..*end,
        _ => 0..0,
    }
}

fn slice<'t>(text: &'t str, ends: &[usize], code: u32) -> &'t str {
    text.get(range(ends, code)).unwrap_or_default()
}

/// As [`slice`], without looking for the borders of characters.
#[inline]
fn bytes<'t>(text: &'t str, ends: &[usize], code: u32) -> &'t [u8] {
    text.as_bytes().get(range(ends, code)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_code_and_ranks_follow_the_texts() {
        let mut dictionary = Dictionary::default();
        let codes: Vec<u32> = ["b", "", "a", "b", "ab"]
            .iter()
            .map(|text| dictionary.code(text))
            .collect();
        assert_eq!(codes, [1, 2, 3, 1, 4]);
        assert_eq!(dictionary.len(), 4);
        assert_eq!(dictionary.value(2), Some(""));
        assert_eq!(dictionary.value(NULL), None);
        assert_eq!(dictionary.ranks(), [0, 4, 1, 2, 3]);
        for a in 0..5 {
            for b in 0..5 {
                let ranks = [0, 4, 1, 2, 3];
                assert_eq!(
                    dictionary.compare(a, b),
                    ranks[a as usize].cmp(&ranks[b as usize]),
                    "{a} {b}"
                );
            }
        }
    }

    #[test]
    fn a_growing_table_finds_every_value_again() {
        let mut dictionary = Dictionary::default();
        for round in 0..2 {
            for n in 0..10_000_u32 {
                assert_eq!(dictionary.code(&n.to_string()), n + 1, "round {round}");
            }
        }
        assert_eq!(dictionary.value(10_000), Some("9999"));
    }
}
