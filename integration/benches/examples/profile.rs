//! One stage over and over, to be run under a profiler: `profile decode 10`.

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next() {
        None => {
            println!("{}", tidegate_benches::run()?);
            Ok(())
        }
        Some(stage) => {
            let times = arguments.next().map_or(Ok(5), |times| times.parse())?;
            tidegate_benches::repeat(&stage, times)
        }
    }
}
