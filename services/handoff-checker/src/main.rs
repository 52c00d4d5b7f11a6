//! Entry of `tidegate-handoff-checker`: a thin main over the library.
fn main() {}
