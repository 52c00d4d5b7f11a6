//! Entry of `tidegate-coordinator`: a thin main over the library.
fn main() {}
