//! Printing: one value, two forms. A view is a plain struct; `--output json` serializes it, a table shows it.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use tidegate_types::TimestampMillis;

use crate::cli::Output;
use crate::failure::Failure;

/// Something that can be shown to a person.
pub(crate) trait Show {
    /// Lines for standard output.
    fn show(&self) -> String;
}

/// Prints a view in the form that was asked for.
pub(crate) fn print(output: Output, view: &(impl Serialize + Show)) -> Result<(), Failure> {
    let text = match output {
        Output::Table => view.show(),
        Output::Json => serde_json::to_string(view)
            .map_err(|error| Failure::Other(format!("the answer cannot be written as JSON: {error}")))?,
    };
    println!("{}", text.trim_end());
    Ok(())
}

/// A table with a heading; `nothing` when it has no rows.
pub(crate) fn table(heading: &[&str], rows: Vec<Vec<String>>, nothing: &str) -> String {
    if rows.is_empty() {
        return nothing.to_owned();
    }
    let mut table = Table::new();
    table
        .load_preset(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(heading);
    table.add_rows(rows);
    table.to_string()
}

/// An instant; empty for 0, which the API uses for "never".
pub(crate) fn instant(millis: i64) -> String {
    if millis == 0 {
        String::new()
    } else {
        TimestampMillis(millis).to_string()
    }
}

/// A number with thin groups, e.g. `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An optional number; `?` when it is not known (B64: unknown is not 0).
pub(crate) fn known(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "?".into(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn b64_an_unknown_number_is_not_zero() {
        assert_eq!(known(None::<u64>), "?");
        assert_eq!(known(Some(0)), "0");
    }
}
