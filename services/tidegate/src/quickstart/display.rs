//! Progress on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_rpc::coordinator::v1::StatusResponse;

use crate::report::grouped;
use crate::views::CountsView;

/// Between two plain lines.
const LINES: Duration = Duration::from_secs(1);

pub(super) struct Display {
    bar: Option<ProgressBar>,
    events: u64,
    last_line: Option<(Instant, String)>,
}

impl Display {
    pub(super) fn new(events: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(events);
            // The template is a constant that parses; without it the bar is merely plainer.
            if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} rows {per_sec} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            events,
            last_line: None,
        }
    }

    /// A line that stays.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) if !bar.is_finished() => bar.println(line),
            _ => eprintln!("{line}"),
        }
    }

    pub(super) fn update(&mut self, status: &StatusResponse) {
        let read = CountsView::from(status.counts).records();
        let rest = format!(
            "lag {}, segments {} ({} handed off)",
            grouped(status.total_lag),
            status.segments,
            status.segments_handed_off
        );
        if let Some(bar) = &self.bar {
            bar.set_position(read.min(self.events));
            bar.set_message(rest);
            return;
        }
        let line = format!("read {} of {} rows, {rest}", grouped(read), grouped(self.events));
        let due = self
            .last_line
            .as_ref()
            .is_none_or(|(at, last)| at.elapsed() >= LINES && *last != line);
        if due {
            eprintln!("{line}");
            self.last_line = Some((Instant::now(), line));
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}
