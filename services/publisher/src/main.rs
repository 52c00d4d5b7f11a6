//! Entry of `tidegate-publisher`: a thin main over the library.
fn main() {}
