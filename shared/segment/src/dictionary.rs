//! Text values of a column, each stored once. Codes are given in order of first sight.

use hashbrown::HashTable;

/// Code of null. Other codes start at 1.
pub(crate) const NULL: u32 = 0;

#[derive(Debug)]
pub(crate) struct Dictionary {
    text: String,
    /// End of each value in `text`; the value of code c ends at `ends[c]`, `ends[0]` is 0.
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: ahash::RandomState,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            text: String::new(),
            ends: vec![0],
            table: HashTable::new(),
            hasher: ahash::RandomState::new(),
        }
    }
}

impl Dictionary {
    #[inline]
    pub(crate) fn code(&mut self, value: &str) -> u32 {
        let Self {
            text,
            ends,
            table,
            hasher,
        } = self;
        let hash = hasher.hash_one(value.as_bytes());
        let same = |code: &u32| slice(text, ends, *code).as_bytes() == value.as_bytes();
        if let Some(code) = table.find(hash, same) {
            return *code;
        }
        let code = ends.len() as u32;
        text.push_str(value);
        ends.push(text.len());
        table.insert_unique(hash, code, |code| {
            hasher.hash_one(slice(text, ends, *code).as_bytes())
        });
        code
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
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.table.capacity() * 5
    }
}

fn slice<'t>(text: &'t str, ends: &[usize], code: u32) -> &'t str {
    let code = code as usize;
    let start = code
        .checked_sub(1)
        .and_then(|before| ends.get(before))
        .copied()
        .unwrap_or(0);
    let end = ends.get(code).copied().unwrap_or(start);
    text.get(start..end).unwrap_or_default()
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
    }
}
