//! What was measured, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::measure::Measured;

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) source: &'static str,
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// In the order in which a row passes them.
    pub(crate) stages: Vec<(&'static str, Measured)>,
    pub(crate) end_to_end: Measured,
}

impl Report {
    /// One core that does one stage after the other: 1 / Σ(1 / rate).
    pub(crate) fn roofline(&self) -> f64 {
        1.0 / self
            .stages
            .iter()
            .map(|(_, measured)| 1.0 / measured.per_second())
            .sum::<f64>()
    }

    pub(crate) fn over_roofline(&self) -> f64 {
        self.end_to_end.per_second() / self.roofline()
    }

    /// Work of the stages alone by work of all together: unlike the wall clock it does not depend on who else uses
    /// the machine. Below 1 is what putting together costs.
    fn cpu_ratio(&self) -> Option<f64> {
        let stages = self
            .stages
            .iter()
            .map(|(_, measured)| Some(measured.cpu?.as_secs_f64()))
            .sum::<Option<f64>>()?;
        Some(stages / self.end_to_end.cpu?.as_secs_f64().max(1e-9))
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{} rows, {} bytes each ({})\n{:<16}{:>14}{:>18}\n",
            self.rows,
            self.bytes / self.rows.max(1),
            self.source,
            "",
            "rows/s",
            "rows/CPU second"
        );
        let end_to_end = [("end to end", self.end_to_end)];
        for (name, measured) in self.stages.iter().chain(&end_to_end) {
            let cpu = measured
                .per_cpu_second()
                .map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name:<16}{:>14.0}{cpu:>18}", measured.per_second());
        }
        let _ = writeln!(
            text,
            "{:<16}{:>14.0}\nend to end / roofline: {:.2}",
            "roofline",
            self.roofline(),
            self.over_roofline()
        );
        text
    }

    pub(crate) fn to_json(&self) -> Value {
        let stages: Map<String, Value> = self
            .stages
            .iter()
            .map(|(name, measured)| ((*name).to_owned(), rates(measured)))
            .collect();
        json!({
            "bench": "hot path",
            "source": self.source,
            "rows": self.rows,
            "bytes": self.bytes,
            "stages": stages,
            "end_to_end": rates(&self.end_to_end),
            "roofline_rows_per_second": self.roofline().round(),
            "end_to_end_over_roofline": rounded(self.over_roofline()),
            "stages_cpu_over_end_to_end_cpu": self.cpu_ratio().map(rounded),
        })
    }
}

fn rates(measured: &Measured) -> Value {
    json!({
        "rows_per_second": measured.per_second().round(),
        "rows_per_cpu_second": measured.per_cpu_second().map(f64::round),
        "seconds": rounded(measured.wall.as_secs_f64()),
    })
}

fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_roofline_is_one_core_doing_one_stage_after_the_other() {
        let measured = |millis, cpu| Measured {
            rows: 1_000,
            wall: Duration::from_millis(millis),
            cpu: Some(Duration::from_millis(cpu)),
        };
        let report = Report {
            source: "generated",
            rows: 1_000,
            bytes: 400_000,
            stages: vec![("consume", measured(100, 200)), ("persist", measured(300, 300))],
            end_to_end: measured(500, 1_000),
        };
        // 0.4 s for 1,000 rows on one core; 0.5 s were needed.
        assert!((report.roofline() - 2_500.0).abs() < 1e-6);
        let json = report.to_json();
        assert_eq!(json["end_to_end_over_roofline"], 0.8);
        assert_eq!(json["stages_cpu_over_end_to_end_cpu"], 0.5);
        assert_eq!(json["stages"]["consume"]["rows_per_second"], 10_000.0);
        assert_eq!(json["stages"]["consume"]["rows_per_cpu_second"], 5_000.0);
        assert!(
            report.table().contains("end to end / roofline: 0.80"),
            "{}",
            report.table()
        );
    }
}
