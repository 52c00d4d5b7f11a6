//! `cargo run --release -p tidegate-simulator --example simulate -- FROM SEEDS`

use tidegate_simulator::{Options, run_many};

fn main() {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let (from, seeds) = (
        arguments.first().copied().unwrap_or(0),
        arguments.get(1).copied().unwrap_or(1_000),
    );
    let begun = std::time::Instant::now();
    match run_many(from, seeds, Options::default()) {
        Ok(coverage) => {
            for (what, times) in &coverage.0 {
                println!("{times:>9} {what}");
            }
            let rate = seeds as f64 / begun.elapsed().as_secs_f64();
            println!(
                "{seeds} seeds, {rate:.0} schedules/s, not met: {:?}",
                coverage.missing()
            );
        }
        Err(failure) => {
            eprintln!("{failure}");
            std::process::exit(1);
        }
    }
}
