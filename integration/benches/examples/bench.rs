//! Prints the benchmark's numbers, without the rest of the chores.

fn main() -> anyhow::Result<()> {
    println!("{:#}", tidegate_benches::run()?);
    Ok(())
}
