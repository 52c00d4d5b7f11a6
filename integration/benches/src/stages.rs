//! Each stage alone, then all together, on the same records and with the same spills.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use tempfile::TempDir;
use tidegate_decode::Layout;

use crate::measure::{Patience, best};
use crate::report::Report;
use crate::task::{self, Spill, Task};
use crate::together::{self, Broker};
use crate::workload::{PARTITIONS, RawBatch, Workload};

pub(crate) fn measure(workload: &Workload, patience: Patience) -> Result<Report> {
    let rows = workload.rows;
    let broker = Broker::with(workload)?;
    let consume = best(patience, rows, || Ok(()), |()| broker.read(rows, |_| Ok(())))?;
    let batches = workload.batches();
    let decode = best(
        patience,
        rows,
        || Ok(batches.clone()),
        |batches| decode(workload, batches),
    )?;
    let spills = self::decode(workload, batches)?;
    let persist = best(patience, rows, tempdir, |folder| {
        persist(&spills, folder).map(|(folder, _)| folder)
    })?;
    let (folder, runs) = self::persist(&spills, tempdir()?)?;
    drop(spills);
    let merge = best(patience, rows, tempdir, |out| merge(workload, &runs, out))?;
    drop(folder);
    let end_to_end = best(patience, rows, tempdir, |folder| {
        together::run(workload, &broker, folder.path())?;
        Ok(folder)
    })?;
    Ok(Report {
        source: workload.source,
        rows,
        bytes: workload.bytes(),
        stages: vec![
            ("consume", consume),
            ("decode_index", decode),
            ("persist", persist),
            ("merge_parquet", merge),
        ],
        end_to_end,
    })
}

pub(crate) fn repeat(stage: &str, times: usize, workload: &Workload) -> Result<()> {
    let patience = Patience {
        repetitions: times,
        ..Patience::default()
    };
    let batches = workload.batches();
    let spills = || decode(workload, batches.clone());
    let measured = match stage {
        "decode" => best(
            patience,
            workload.rows,
            || Ok(batches.clone()),
            |batches| decode(workload, batches),
        )?,
        "persist" => {
            let spills = spills()?;
            best(patience, workload.rows, tempdir, |folder| {
                persist(&spills, folder)
            })?
        }
        "merge" => {
            let (_folder, runs) = persist(&spills()?, tempdir()?)?;
            best(patience, workload.rows, tempdir, |out| {
                merge(workload, &runs, out)
            })?
        }
        other => bail!("there is no stage {other:?}; there are: decode, persist, merge"),
    };
    eprintln!(
        "{stage}: {:.0} rows/s, {:.0} rows/CPU second",
        measured.per_second(),
        measured.per_cpu_second().unwrap_or(0.0)
    );
    Ok(())
}

fn tempdir() -> Result<TempDir> {
    Ok(tempfile::tempdir()?)
}

fn decode(workload: &Workload, batches: Vec<RawBatch>) -> Result<Vec<Spill>> {
    let mut task = Task::new(&workload.schema)?;
    let mut spills = Vec::new();
    for mut batch in batches {
        for (value, offset) in batch.values.iter().zip(batch.first_offset..) {
            task.record(batch.partition, offset, batch.bytes.get_mut(value.clone()))?;
        }
        if task.is_full() {
            spills.extend(task.spill());
        }
    }
    spills.extend(task.spill());
    Ok(spills)
}

type Runs = Vec<(usize, PathBuf)>;

fn persist(spills: &[Spill], folder: TempDir) -> Result<(TempDir, Runs)> {
    let mut runs = Runs::new();
    for spill in spills {
        let path = spill.path(folder.path());
        tidegate_segment::persist(&spill.run, &path)?;
        runs.push((spill.partition, path));
    }
    Ok((folder, runs))
}

fn merge(workload: &Workload, runs: &Runs, out: TempDir) -> Result<TempDir> {
    let layout = Layout::of(&workload.schema);
    let mut rows = 0;
    for partition in 0..PARTITIONS {
        rows += task::merge(
            workload,
            &layout,
            partition,
            &task::runs_of(partition, runs),
            out.path(),
        )?;
    }
    ensure!(
        rows == workload.rows as u64,
        "{rows} of {} rows are in segments",
        workload.rows
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events;

    #[test]
    fn every_stage_and_the_whole_are_measured_on_all_rows() {
        let workload = Workload::of(events::generate(500), "generated", 6_000).unwrap();
        let patience = Patience {
            repetitions: 1,
            ..Patience::default()
        };
        let report = measure(&workload, patience).unwrap();
        let json = report.to_json();
        for stage in ["consume", "decode_index", "persist", "merge_parquet"] {
            assert!(
                json["stages"][stage]["rows_per_second"].as_f64().unwrap() > 0.0,
                "{json}"
            );
        }
        assert!(
            json["end_to_end"]["rows_per_second"].as_f64().unwrap() > 0.0,
            "{json}"
        );
        assert!(json["end_to_end_over_roofline"].as_f64().unwrap() > 0.0, "{json}");
    }
}
