//! Other people's readers open our segments: pyarrow, DuckDB and polars, from PyPI.

#![allow(clippy::unwrap_used, reason = "a test file; helpers are outside #[test]")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// What each reader must say about the folder: rows, sum(added), type of `__time`.
const SCRIPT: &str = r#"
import glob, json, sys
folder = sys.argv[1]
files = sorted(glob.glob(folder + "/**/*.parquet", recursive=True))
import pyarrow.parquet as pq, pyarrow as pa
tables = [pq.read_table(f) for f in files]
meta = {k.decode(): v.decode() for k, v in pq.ParquetFile(files[0]).metadata.metadata.items()}
import duckdb
d = duckdb.sql(f"select count(*), sum(added), min(typeof(__time)) from read_parquet('{folder}/**/*.parquet')").fetchall()[0]
import polars as pl
p = pl.read_parquet(files)
print(json.dumps({
  "files": len(files),
  "pyarrow": {"rows": sum(t.num_rows for t in tables), "added": sum(sum(x or 0 for x in t["added"].to_pylist()) for t in tables),
              "time": str(tables[0].schema.field("__time").type),
              "sorted": all(t["__time"].to_pylist() == sorted(t["__time"].to_pylist()) for t in tables)},
  "duckdb": {"rows": d[0], "added": int(d[1]), "time": d[2]},
  "polars": {"rows": p.height, "added": int(p["added"].sum())},
  "metadata": sorted(k for k in meta if k.startswith("tidegate.")),
}))
"#;

fn binary(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    folder.join(name)
}

#[test]
fn pyarrow_duckdb_and_polars_read_what_quickstart_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let run = Command::new(binary("tidegate"))
        .args([
            "quickstart",
            "--events",
            "5000",
            "--seed",
            "7",
            "--output",
            "json",
            "--data-dir",
        ])
        .arg(folder.path())
        .output()
        .expect("tidegate is built beside the tests: cargo build --workspace --bins");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let said: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();

    let python = tidegate_servers::tools::python().unwrap();
    let read = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let seen: Value = serde_json::from_slice(&read.stdout).unwrap();

    for reader in ["pyarrow", "duckdb", "polars"] {
        assert_eq!(seen[reader]["rows"], said["rows_in_segments"], "{reader}: {seen}");
        assert_eq!(seen[reader]["added"], seen["pyarrow"]["added"], "{reader}");
    }
    assert_eq!(seen["files"], said["segments"]);
    assert_eq!(seen["pyarrow"]["time"], "timestamp[ms, tz=UTC]");
    assert_eq!(seen["duckdb"]["time"], "TIMESTAMP WITH TIME ZONE");
    assert_eq!(seen["pyarrow"]["sorted"], true);
    for key in [
        "data_source",
        "interval",
        "version",
        "partition_num",
        "sequence",
        "rows",
        "writer_version",
    ] {
        let key = format!("tidegate.{key}");
        assert!(
            seen["metadata"]
                .as_array()
                .unwrap()
                .contains(&Value::from(key.clone())),
            "{key}: {seen}"
        );
    }
}
