//! "Did you mean": the nearest known name.

/// The nearest of `known`, if it is near enough to be what was meant.
pub(crate) fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A longer text is no slip of the finger, and comparing it would take long.
    if given.len() > 64 {
        return None;
    }
    let folded = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&folded, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= (name.chars().count() / 4).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `; did you mean `x`?`, or nothing.
pub(crate) fn did_you_mean<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(given, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// A text from a document as it may stand in a message: short.
pub(crate) fn shown(text: &str) -> String {
    if text.chars().count() <= 64 {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(64).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_another_word_finds_none() {
        let known = ["string", "long", "earlyMessageRejectionPeriod", "taskCount"];
        assert_eq!(nearest("strng", known), Some("string"));
        assert_eq!(
            nearest("earlyMessageRejectonPeriod", known),
            Some("earlyMessageRejectionPeriod")
        );
        assert_eq!(nearest("TASKCOUNT", known), Some("taskCount"));
        assert_eq!(nearest("fortnight", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
