//! The events that scenarios produce, with totals that are known beforehand.
//!
//! The real ones are wiki edits of one day. Where the file is absent (at a user's), as many made-up ones take their
//! place, with totals of their own; in CI the absence is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

const FILE: &str = "shared/data/wikiticker-2015-09-12-sampled.json.gz";
const EVENTS: usize = 39_244;

/// Sums over a set of events. They are integers, so they are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Totals {
    pub(crate) rows: u64,
    pub(crate) added: i64,
    pub(crate) deleted: i64,
    pub(crate) delta: i64,
    /// Hours that hold rows.
    pub(crate) intervals: usize,
    /// Events with a character outside ASCII in a text field.
    pub(crate) non_ascii: u64,
}

/// Events as JSON text, one per record, and what they add up to.
pub(crate) struct Events {
    pub(crate) records: Vec<String>,
    pub(crate) totals: Totals,
    /// Rows after roll-up to (hour, channel).
    pub(crate) hours_by_channel: usize,
    /// `file` or `generated`.
    pub(crate) source: &'static str,
}

pub(crate) fn load() -> Result<Events> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let path = std::env::var_os("TIDEGATE_SHARED").map_or_else(
        || root.join(FILE),
        |shared| PathBuf::from(shared).join(FILE.trim_start_matches("shared/")),
    );
    if path.exists() {
        let events = of(unpack(&path)?, "file")?;
        // The totals of the file are facts from elsewhere; they are not computed by what is tested.
        let known = Totals {
            rows: 39_244,
            added: 9_385_573,
            deleted: 394_298,
            delta: 8_991_275,
            intervals: 24,
            non_ascii: 17_881,
        };
        ensure!(
            events.totals == known,
            "{} is not the file it should be: {:?}",
            path.display(),
            events.totals
        );
        return Ok(events);
    }
    ensure!(
        std::env::var_os("CI").is_none(),
        "{} is absent; in CI the real events must be there",
        path.display()
    );
    eprintln!(
        "{} is absent: running on {EVENTS} made-up events with totals of their own",
        path.display()
    );
    of(generate(EVENTS), "generated")
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
    Ok(text.lines().map(str::to_owned).collect())
}

fn of(records: Vec<String>, source: &'static str) -> Result<Events> {
    let mut totals = Totals::default();
    let mut hours = BTreeSet::new();
    let mut cells: BTreeMap<(String, String), u64> = BTreeMap::new();
    for record in &records {
        let event: Value = serde_json::from_str(record)?;
        let number = |field: &str| event[field].as_i64().unwrap_or(0);
        totals.rows += 1;
        totals.added += number("added");
        totals.deleted += number("deleted");
        totals.delta += number("delta");
        totals.non_ascii += u64::from(!record.is_ascii());
        let hour = event["time"].as_str().context("an event without time")?[..13].to_owned();
        hours.insert(hour.clone());
        *cells
            .entry((hour, event["channel"].as_str().unwrap_or_default().to_owned()))
            .or_default() += 1;
    }
    totals.intervals = hours.len();
    Ok(Events {
        records,
        totals,
        hours_by_channel: cells.len(),
        source,
    })
}

fn generate(count: usize) -> Vec<String> {
    let mut random = SmallRng::seed_from_u64(20_150_912);
    let channels = ["#en.wikipedia", "#fr.wikipedia", "#ja.wikipedia", "#pl.wikipedia"];
    let pages = ["Łódź", "東京", "Cairo", "Île-de-France", "Main Page"];
    (0..count)
        .map(|index| {
            let second = index * 86_399 / count;
            let (added, deleted) = (random.random_range(0..2_000_i64), random.random_range(0..300_i64));
            json!({
                "time": format!("2015-09-12T{:02}:{:02}:{:02}.{:03}Z", second / 3600, second / 60 % 60, second % 60, index % 1000),
                "channel": channels[random.random_range(0..channels.len())],
                "page": pages[random.random_range(0..pages.len())],
                "user": format!("user{}", random.random_range(0..500)),
                "comment": "made up", "isRobot": random.random_bool(0.4),
                "added": added, "deleted": deleted, "delta": added - deleted,
            })
            .to_string()
        })
        .collect()
}
