//! Entry of `tidegate-task-runner`: a thin main over the library.
fn main() {}
