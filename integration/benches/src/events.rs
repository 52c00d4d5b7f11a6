//! The events to run on: one real day of wiki edits, or made-up ones of the same shape where the file is absent.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

const FILE: &str = "data/wikiticker-2015-09-12-sampled.json.gz";
const MADE_UP: usize = 40_000;

/// Different events as JSON text, in order of time.
pub(crate) struct Events {
    pub(crate) records: Vec<String>,
    /// `file` or `generated`.
    pub(crate) source: &'static str,
}

pub(crate) fn load() -> Result<Events> {
    let shared = std::env::var_os("TIDEGATE_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = shared.join(FILE);
    if path.exists() {
        return Ok(Events {
            records: unpack(&path)?,
            source: "file",
        });
    }
    eprintln!(
        "{} is absent: running on made-up events of the same shape",
        path.display()
    );
    Ok(Events {
        records: generate(MADE_UP),
        source: "generated",
    })
}

fn unpack(path: &Path) -> Result<Vec<String>> {
    let mut child = Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run gzip to unpack the events")?;
    let mut text = String::new();
    child
        .stdout
        .take()
        .context("gzip has no output")?
        .read_to_string(&mut text)?;
    ensure!(
        child.wait()?.success(),
        "gzip could not unpack {}",
        path.display()
    );
    let records: Vec<String> = text.lines().map(str::to_owned).collect();
    ensure!(!records.is_empty(), "{} holds no events", path.display());
    Ok(records)
}

/// Made-up edits with the fields of real ones, and about as many different values.
pub(crate) fn generate(count: usize) -> Vec<String> {
    let mut random = SmallRng::seed_from_u64(20_150_912);
    let channels = [
        "#en.wikipedia",
        "#fr.wikipedia",
        "#ja.wikipedia",
        "#pl.wikipedia",
        "#vi.wikipedia",
    ];
    let namespaces = ["Main", "Talk", "User", "Category", "Wikipedia"];
    let countries = [("US", "United States"), ("PL", "Poland"), ("JP", "Japan")];
    (0..count)
        .map(|index| {
            let second = index * 86_399 / count;
            let (added, deleted) = (random.random_range(0..2_000_i64), random.random_range(0..300_i64));
            let country = random
                .random_bool(0.1)
                .then(|| countries[random.random_range(0..countries.len())]);
            json!({
                "time": format!("2015-09-12T{:02}:{:02}:{:02}.{:03}Z",
                    second / 3600, second / 60 % 60, second % 60, index % 1000),
                "channel": channels[random.random_range(0..channels.len())],
                "cityName": country.map(|_| format!("Łódź {}", random.random_range(0..500))),
                "comment": format!("/* Section {} */ a change of about the usual length, number {index}",
                    random.random_range(0..100)),
                "countryIsoCode": country.map(|(code, _)| code),
                "countryName": country.map(|(_, name)| name),
                "isAnonymous": country.is_some(),
                "isMinor": random.random_bool(0.2),
                "isNew": random.random_bool(0.1),
                "isRobot": random.random_bool(0.4),
                "isUnpatrolled": random.random_bool(0.1),
                "metroCode": country.map(|_| random.random_range(500..900)),
                "namespace": namespaces[random.random_range(0..namespaces.len())],
                "page": format!("東京 page {}", random.random_range(0..count * 4 / 5)),
                "regionIsoCode": null,
                "regionName": null,
                "user": format!("user {}", random.random_range(0..count / 4 + 1)),
                "delta": added - deleted,
                "added": added,
                "deleted": deleted,
            })
            .to_string()
        })
        .collect()
}
