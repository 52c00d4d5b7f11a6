//! Counting.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use prometheus::core::Collector;
use prometheus::proto::{LabelPair, Metric};
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};

/// A number that only grows. `N` labels beside `service`.
#[derive(Debug, Clone, Copy)]
pub struct Counter<const N: usize> {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: [&'static str; N],
}

/// A number that stands at something.
#[derive(Debug, Clone, Copy)]
pub struct Gauge<const N: usize> {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: [&'static str; N],
}

/// How long things took, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Histogram<const N: usize> {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: [&'static str; N],
}

/// The registry of a process, seen by one service: each sample carries its name in the label `service`. Cheap to
/// clone. A sample that the registry refuses is dropped; counting never fails.
#[derive(Clone)]
pub struct Metrics {
    service: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    registry: Registry,
    /// Made at first use, so that a service shows only what it has.
    families: RwLock<HashMap<&'static str, FamilyVec>>,
    /// Set once, when OTLP is on.
    meter: RwLock<Option<Meter>>,
}

#[derive(Clone)]
enum FamilyVec {
    Counter(IntCounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

const SECONDS: &[f64] = &[
    0.005, 0.02, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Metrics {
    /// A registry of its own, as a process has one. `service` is e.g. `publisher`.
    pub fn new(service: &'static str) -> Self {
        Self {
            service,
            shared: Arc::default(),
        }
    }

    /// The same registry, for another service in the same process.
    pub fn of(&self, service: &'static str) -> Self {
        Self {
            service,
            shared: self.shared.clone(),
        }
    }

    pub fn count<const N: usize>(&self, family: &Counter<N>, labels: [&str; N], by: u64) {
        let made = self.family(family.name, || {
            let vec = IntCounterVec::new(Opts::new(family.name, family.help), &with_service(&family.labels))?;
            Ok(FamilyVec::Counter(vec))
        });
        if let Some(FamilyVec::Counter(vec)) = made
            && let Ok(one) = vec.get_metric_with_label_values(&self.values(&labels))
        {
            one.inc_by(by);
        }
    }

    pub fn set<const N: usize>(&self, family: &Gauge<N>, labels: [&str; N], value: f64) {
        if let Some(vec) = self.gauge(family)
            && let Ok(one) = vec.get_metric_with_label_values(&self.values(&labels))
        {
            one.set(value);
        }
    }

    /// Removes one labelled sample, e.g. of a partition that this process no longer watches.
    pub fn forget<const N: usize>(&self, family: &Gauge<N>, labels: [&str; N]) {
        if let Some(vec) = self.gauge(family) {
            // Not there is fine.
            let _ = vec.remove_label_values(&self.values(&labels));
        }
    }

    pub fn time<const N: usize>(&self, family: &Histogram<N>, labels: [&str; N], took: Duration) {
        let made = self.family(family.name, || {
            let options = HistogramOpts::new(family.name, family.help).buckets(SECONDS.to_vec());
            Ok(FamilyVec::Histogram(HistogramVec::new(
                options,
                &with_service(&family.labels),
            )?))
        });
        if let Some(FamilyVec::Histogram(vec)) = made
            && let Ok(one) = vec.get_metric_with_label_values(&self.values(&labels))
        {
            one.observe(took.as_secs_f64());
        }
    }

    /// All samples in the Prometheus text format.
    pub fn text(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.shared.registry.gather())
            .unwrap_or_default()
    }

    /// From now on every family is also observed through OpenTelemetry.
    pub(crate) fn export_to(&self, meter: Meter) {
        let families = self
            .shared
            .families
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for (name, family) in families {
            family.observe(name, &meter);
        }
        *self.shared.meter.write().unwrap_or_else(PoisonError::into_inner) = Some(meter);
    }

    fn gauge<const N: usize>(&self, family: &Gauge<N>) -> Option<GaugeVec> {
        let made = self.family(family.name, || {
            let vec = GaugeVec::new(Opts::new(family.name, family.help), &with_service(&family.labels))?;
            Ok(FamilyVec::Gauge(vec))
        });
        match made {
            Some(FamilyVec::Gauge(vec)) => Some(vec),
            _ => None,
        }
    }

    fn values<'a>(&self, labels: &[&'a str]) -> Vec<&'a str> {
        std::iter::once(self.service)
            .chain(labels.iter().copied())
            .collect()
    }

    fn family(
        &self,
        name: &'static str,
        make: impl FnOnce() -> prometheus::Result<FamilyVec>,
    ) -> Option<FamilyVec> {
        if let Some(found) = self
            .shared
            .families
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
        {
            return Some(found.clone());
        }
        let mut families = self
            .shared
            .families
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = families.get(name) {
            return Some(found.clone());
        }
        let made = make().and_then(|made| self.shared.registry.register(made.collector()).map(|()| made));
        match made {
            Ok(made) => {
                if let Some(meter) = &*self.shared.meter.read().unwrap_or_else(PoisonError::into_inner) {
                    made.observe(name, meter);
                }
                families.insert(name, made.clone());
                Some(made)
            }
            Err(error) => {
                tracing::debug!(name, %error, "the metric is refused by the registry");
                None
            }
        }
    }
}

fn with_service<'a>(labels: &[&'a str]) -> Vec<&'a str> {
    std::iter::once("service").chain(labels.iter().copied()).collect()
}

impl FamilyVec {
    fn collector(&self) -> Box<dyn Collector> {
        match self {
            Self::Counter(vec) => Box::new(vec.clone()),
            Self::Gauge(vec) => Box::new(vec.clone()),
            Self::Histogram(vec) => Box::new(vec.clone()),
        }
    }

    /// One set of numbers, two ways out: the OTLP reader asks the same samples that `/metrics` shows. A histogram
    /// goes out as its sum and its count.
    fn observe(&self, name: &'static str, meter: &Meter) {
        match self {
            Self::Counter(vec) => {
                let all = each(vec.clone(), |sample| sample.get_counter().get_value() as u64);
                meter.u64_observable_counter(name).with_callback(all).build();
            }
            Self::Gauge(vec) => {
                let all = each(vec.clone(), |sample| sample.get_gauge().get_value());
                meter.f64_observable_gauge(name).with_callback(all).build();
            }
            Self::Histogram(vec) => {
                let sums = each(vec.clone(), |sample| sample.get_histogram().get_sample_sum());
                let counts = each(vec.clone(), |sample| sample.get_histogram().get_sample_count());
                meter
                    .f64_observable_counter(format!("{name}_sum"))
                    .with_callback(sums)
                    .build();
                meter
                    .u64_observable_counter(format!("{name}_count"))
                    .with_callback(counts)
                    .build();
            }
        }
    }
}

/// A callback that observes one number of each sample of a family.
fn each<T>(collector: impl Collector, number: impl Fn(&Metric) -> T) -> impl Fn(&dyn AsyncInstrument<T>) {
    move |instrument| {
        for family in collector.collect() {
            for sample in family.get_metric() {
                let label =
                    |label: &LabelPair| KeyValue::new(label.name().to_owned(), label.value().to_owned());
                let labels: Vec<KeyValue> = sample.get_label().iter().map(label).collect();
                instrument.observe(number(sample), &labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Counter<2> = Counter {
        name: "t_rows_total",
        help: "Rows.",
        labels: ["supervisor", "outcome"],
    };
    const LAG: Gauge<1> = Gauge {
        name: "t_lag",
        help: "Lag.",
        labels: ["partition"],
    };
    const TOOK: Histogram<0> = Histogram {
        name: "t_seconds",
        help: "Time.",
        labels: [],
    };

    #[test]
    fn services_of_one_process_share_a_registry_and_keep_their_names() {
        let publisher = Metrics::new("publisher");
        let coordinator = publisher.of("coordinator");
        publisher.count(&ROWS, ["wiki", "accepted"], 2);
        coordinator.count(&ROWS, ["wiki", "accepted"], 3);
        publisher.count(&ROWS, ["wiki", "accepted"], 5);
        coordinator.set(&LAG, ["0"], 17.0);
        publisher.time(&TOOK, [], Duration::from_millis(1500));
        let text = coordinator.text();
        for line in [
            r#"t_rows_total{outcome="accepted",service="publisher",supervisor="wiki"} 7"#,
            r#"t_rows_total{outcome="accepted",service="coordinator",supervisor="wiki"} 3"#,
            r#"t_lag{partition="0",service="coordinator"} 17"#,
            r#"t_seconds_sum{service="publisher"} 1.5"#,
            r#"t_seconds_bucket{service="publisher",le="2.5"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        coordinator.forget(&LAG, ["0"]);
        coordinator.forget(&LAG, ["9"]);
        assert!(!coordinator.text().contains("t_lag{"));
    }

    #[test]
    fn one_name_used_for_two_kinds_drops_the_second_and_goes_on() {
        let metrics = Metrics::new("x");
        metrics.count(&ROWS, ["a", "b"], 1);
        metrics.set(
            &Gauge {
                name: "t_rows_total",
                help: "",
                labels: [],
            },
            [],
            9.0,
        );
        assert!(metrics.text().contains("t_rows_total{") && !metrics.text().contains(" 9"));
    }
}
