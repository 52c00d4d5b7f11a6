//! The wiki edits while services are killed with SIGKILL at moments that nobody chose, faster than they recover.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_servers::unique_name;

use crate::cluster::{Cluster, Service};
use crate::events;
use crate::wikiticker::{self, Ingest};

const SERVICES: [Service; 4] = [
    Service::TaskRunner,
    Service::Publisher,
    Service::Coordinator,
    Service::HandoffChecker,
];
const KILLS_PER_PIECE: usize = 3;

/// Small and good enough to choose victims and moments; the seed is printed, so that a run can be told from another.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

pub(crate) fn run() -> Result<Value> {
    let seed = match std::env::var("TIDEGATE_CHAOS_SEED") {
        Ok(text) => text.parse()?,
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos() as u64 | 1),
    };
    let mut dice = Dice(seed);
    let events = events::load()?;
    let mut cluster = Cluster::start(2)?;
    let name = unique_name("wiki-chaos");
    let what = Ingest {
        replicas: 2,
        rows_per_sequence: Some((1_000, 500)),
        ..Ingest::plain(&name)
    };
    let mut kills = 0;
    let held = wikiticker::ingest(&mut cluster, what, &events, |cluster, _| {
        for _ in 0..KILLS_PER_PIECE {
            // The moment is the point here; nothing is waited for.
            std::thread::sleep(Duration::from_millis(dice.below(900)));
            cluster.kill9_and_restart(SERVICES[dice.below(4) as usize])?;
            kills += 1;
        }
        Ok(())
    })?;
    cluster.stop()?;
    let ok = held.totals == events.totals;
    Ok(json!({
        "scenario": "wikiticker-chaos", "seed": seed, "events": events.source, "expected": events.totals,
        "held": held.totals, "kills": kills, "ok": ok,
    }))
}
