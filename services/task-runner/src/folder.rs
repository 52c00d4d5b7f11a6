//! A task's folder: `record.json` and the files of rows.
//!
//! Promises: the record is replaced as a whole, with a checksum (D47); fields of a newer version are kept; a
//! folder that cannot be used is said to be so, never guessed at (B56, B57).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tidegate_protocol::task::{GroupMode, LocalState, TaskRecord};

use crate::durable;

/// Format of a legacy task's record: that of 0.1.0, which restores it.
const LEGACY_FORMAT: u32 = 1;
/// Format of a checkpointing task's record, and the newest that this version reads.
const FORMAT: u32 = 2;

/// Times that a folder is removed before it is said that it cannot be.
const REMOVALS: u32 = 5;

const RECORD: &str = "record.json";
const ROWS: &str = "rows";

/// Around the record.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    /// Format that the writer used.
    format: u32,
    /// The oldest format whose readers may read this.
    oldest_reader: u32,
    /// SHA-256 over the body as compact JSON, lower-case hex.
    checksum: String,
    body: Value,
}

/// What a folder holds.
#[derive(Debug)]
pub(crate) enum Found {
    Record(Box<TaskRecord>),
    /// Nothing was ever acknowledged from here: it can go.
    Nothing,
    /// It cannot be used: why, and what can still be read of its assignment.
    NotRestorable {
        why: String,
        remains: Value,
    },
}

/// One task's files. Calls block: use them off the async threads.
#[derive(Debug, Clone)]
pub(crate) struct TaskFolder {
    root: PathBuf,
    disk: Arc<DiskUse>,
}

/// Bytes of rows on disk: of one task, and of all tasks of the runner.
#[derive(Debug)]
pub(crate) struct DiskUse {
    own: AtomicU64,
    all: Arc<DiskBudget>,
}

/// Bytes of rows on disk of all tasks, with their bound (I8).
#[derive(Debug)]
pub(crate) struct DiskBudget {
    used: AtomicU64,
    limit: u64,
}

impl DiskBudget {
    /// `limit` 0 = no bound.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            limit,
        })
    }
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
    /// Bytes, and their bound; 0 = none.
    pub(crate) fn used_and_limit(&self) -> (u64, u64) {
        (self.used(), self.limit)
    }
}

impl DiskUse {
    pub(crate) fn budget(&self) -> &DiskBudget {
        &self.all
    }
    pub(crate) fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
    pub(crate) fn add(&self, bytes: u64) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.all.used.fetch_add(bytes, Ordering::Relaxed);
    }
    fn subtract(&self, bytes: u64) {
        let own = self.own.load(Ordering::Relaxed).min(bytes);
        self.own.fetch_sub(own, Ordering::Relaxed);
        self.all.used.fetch_sub(own, Ordering::Relaxed);
    }
    fn set(&self, bytes: u64) {
        let before = self.own.swap(bytes, Ordering::Relaxed);
        self.all.used.fetch_add(bytes, Ordering::Relaxed);
        self.all.used.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for DiskUse {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl TaskFolder {
    pub(crate) fn at(root: PathBuf, budget: &Arc<DiskBudget>) -> Self {
        Self {
            root,
            disk: Arc::new(DiskUse {
                own: AtomicU64::new(0),
                all: budget.clone(),
            }),
        }
    }

    /// Where runs and merged segments lie.
    pub(crate) fn rows(&self) -> PathBuf {
        self.root.join(ROWS)
    }
    pub(crate) fn disk(&self) -> &Arc<DiskUse> {
        &self.disk
    }

    /// Replaces the record; durable when it returns.
    pub(crate) fn save(&self, record: &TaskRecord) -> io::Result<()> {
        fs::create_dir_all(self.rows())?;
        let body = serde_json::to_value(record)?;
        let checksum = checksum(&body)?;
        let format = match record.mode() {
            GroupMode::Legacy => LEGACY_FORMAT,
            GroupMode::Checkpointing => FORMAT,
        };
        let envelope = Envelope {
            format,
            oldest_reader: format,
            checksum,
            body,
        };
        durable::replace(&self.root.join(RECORD), &serde_json::to_vec(&envelope)?)?;
        if let Some(tasks) = self.root.parent() {
            durable::sync_folder(tasks)?;
        }
        Ok(())
    }

    /// Reads the record.
    pub(crate) fn load(&self) -> Found {
        let not = |why: String| Found::NotRestorable {
            why,
            remains: Value::Null,
        };
        let text = match fs::read(self.root.join(RECORD)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let has_rows = fs::read_dir(self.rows()).is_ok_and(|mut files| files.next().is_some());
                return if has_rows {
                    not(format!("{RECORD} is missing"))
                } else {
                    Found::Nothing
                };
            }
            Err(error) => return not(format!("{RECORD} cannot be read: {error}")),
        };
        let envelope: Envelope = match serde_json::from_slice(&text) {
            Ok(envelope) => envelope,
            Err(error) => return not(format!("{RECORD} is damaged: {error}")),
        };
        let why = match Self::open(&envelope) {
            Ok(record) => return Found::Record(record),
            Err(why) => why,
        };
        Found::NotRestorable {
            why,
            remains: envelope.body.get("assignment").cloned().unwrap_or_default(),
        }
    }

    fn open(envelope: &Envelope) -> Result<Box<TaskRecord>, String> {
        if envelope.oldest_reader > FORMAT {
            return Err(format!(
                "{RECORD} has format {} and asks for a reader of format {} or newer, this version reads up to {FORMAT}",
                envelope.format, envelope.oldest_reader
            ));
        }
        let found = checksum(&envelope.body).map_err(|error| error.to_string())?;
        if found != envelope.checksum {
            return Err(format!(
                "{RECORD} is damaged: its checksum is {found}, not {}",
                envelope.checksum
            ));
        }
        let record: TaskRecord = serde_json::from_value(envelope.body.clone())
            .map_err(|error| format!("{RECORD} is not understood by this version: {error}"))?;
        match record.broken() {
            None => Ok(Box::new(record)),
            Some(why) => Err(format!("{RECORD} contradicts itself: {why}")),
        }
    }

    /// Removes what the record does not name, and checks what it names, by size and checksum.
    pub(crate) fn inspect(&self, record: &TaskRecord) -> io::Result<LocalState> {
        fs::create_dir_all(self.rows())?;
        let named: std::collections::HashSet<&str> = record.files().map(|(file, ..)| file).collect();
        let mut bytes = 0;
        for entry in fs::read_dir(self.rows())? {
            let entry = entry?;
            if entry
                .file_name()
                .to_str()
                .is_some_and(|name| named.contains(name))
            {
                bytes += entry.metadata()?.len();
            } else if entry.file_type()?.is_dir() {
                durable::remove_folder(&entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        self.disk.set(bytes);
        if record.unpublished().next().is_none() {
            return Ok(LocalState::Intact); // only handoffs are left
        }
        for run in &record.runs {
            if let Err(why) = self.check(&run.file, run.bytes, &run.sha256) {
                return Ok(LocalState::Lost(why));
            }
        }
        let merged = record.unpublished().flat_map(|part| part.merged.iter().flatten());
        for segment in merged {
            if self.check(&segment.file, segment.bytes, &segment.sha256).is_err() {
                return Ok(LocalState::MergedLost);
            }
        }
        Ok(LocalState::Intact)
    }

    fn check(&self, file: &str, bytes: u64, sha256: &str) -> Result<(), String> {
        match durable::measure(&self.rows().join(file)) {
            Ok((size, sum)) if size == bytes && sum == sha256 => Ok(()),
            Ok(_) => Err(format!("{file} is damaged")),
            Err(error) => Err(format!("{file} cannot be read: {error}")),
        }
    }

    /// Removes some files of rows that the record does not name any more.
    pub(crate) fn drop_files(&self, files: &[String]) -> io::Result<()> {
        for file in files {
            let path = self.rows().join(file);
            let bytes = match fs::metadata(&path) {
                Ok(metadata) => metadata.len(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            fs::remove_file(&path)?;
            self.disk.subtract(bytes);
        }
        Ok(())
    }

    /// Removes all files of rows; the record stays. A task that was forgotten meanwhile stays so: nothing is made
    /// anew where its folder was.
    pub(crate) fn drop_rows(&self) -> io::Result<()> {
        durable::remove_folder(&self.rows())?;
        self.disk.set(0);
        match fs::create_dir(self.rows()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes everything, also what a task that is about to end puts there at the same time.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for left in (0..REMOVALS).rev() {
            match durable::remove_folder(&self.root) {
                Ok(()) if !self.root.exists() => break,
                Err(error) if left == 0 => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.disk.set(0);
        Ok(())
    }
}

fn checksum(body: &Value) -> io::Result<String> {
    Ok(hex::encode(Sha256::digest(serde_json::to_vec(body)?)))
}

/// The folders of all tasks, by name.
pub(crate) fn list(tasks: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(tasks)? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::tests::assignment;
    use tidegate_protocol::task::Run;
    use tidegate_types::{SequenceId, TimestampMillis};

    fn folder(root: &Path) -> TaskFolder {
        TaskFolder::at(root.join("t"), &DiskBudget::new(0))
    }

    #[test]
    fn a_record_survives_and_keeps_the_fields_of_a_newer_version() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let mut record = TaskRecord::new(assignment(), TimestampMillis(5));
        record
            .unknown
            .insert("invented_later".into(), serde_json::json!({"a": [1]}));
        record
            .assignment
            .unknown
            .insert("also_later".into(), serde_json::json!("x"));
        folder.save(&record).unwrap();
        let Found::Record(found) = folder.load() else {
            panic!()
        };
        assert_eq!(*found, record);
        folder.save(&found).unwrap();
        let text = fs::read_to_string(root.path().join("t/record.json")).unwrap();
        assert!(
            text.contains("\"invented_later\":{\"a\":[1]}") && text.contains("\"also_later\":\"x\""),
            "{text}"
        );
    }

    #[test]
    fn rows_that_are_dropped_when_the_task_is_forgotten_bring_nothing_back() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        folder
            .save(&TaskRecord::new(assignment(), TimestampMillis(5)))
            .unwrap();
        folder.drop_rows().unwrap();
        assert!(folder.rows().exists(), "it may read again");
        folder.remove().unwrap();
        folder.drop_rows().unwrap();
        assert!(!root.path().join("t").exists());
        // Both at once, as often as not.
        for _ in 0..50 {
            folder
                .save(&TaskRecord::new(assignment(), TimestampMillis(5)))
                .unwrap();
            let other = folder.clone();
            let dropping = std::thread::spawn(move || other.drop_rows());
            folder.remove().unwrap();
            dropping.join().unwrap().unwrap();
            assert!(!root.path().join("t").exists());
        }
    }

    #[test]
    fn b56_b57_a_record_that_cannot_be_used_says_why_and_whose_it_is() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        folder
            .save(&TaskRecord::new(assignment(), TimestampMillis(5)))
            .unwrap();
        let path = root.path().join("t/record.json");
        let good = fs::read_to_string(&path).unwrap();
        for (text, expected) in [
            (
                good.replacen(
                    "\"format\":1,\"oldest_reader\":1",
                    "\"format\":9,\"oldest_reader\":9",
                    1,
                ),
                "format 9",
            ),
            (good.replacen("\"legacy\"", "\"checkpointing\"", 1), "checksum"),
            (good[..good.len() / 2].to_owned(), "damaged"),
            (good.replacen("topic", "tqpic", 1), "checksum"),
        ] {
            fs::write(&path, text).unwrap();
            let Found::NotRestorable { why, .. } = folder.load() else {
                panic!("{expected}")
            };
            assert!(why.contains(expected), "{why}");
        }
        let mut envelope: Value = serde_json::from_str(&good).unwrap();
        envelope["body"]["assignment"]["mode"] = "invented-later".into();
        envelope["checksum"] = checksum(&envelope["body"]).unwrap().into();
        fs::write(&path, envelope.to_string()).unwrap();
        let Found::NotRestorable { why, remains } = folder.load() else {
            panic!()
        };
        assert!(
            why.contains("not understood"),
            "an unknown mode is never treated as legacy: {why}"
        );
        assert_eq!(remains["group"], "g");
    }

    #[test]
    fn b56_missing_cut_or_flipped_files_are_found_and_strange_ones_removed() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let mut record = TaskRecord::new(assignment(), TimestampMillis(5));
        folder.save(&record).unwrap();
        let path = folder.rows().join("run-1");
        fs::write(&path, b"0123456789").unwrap();
        let (bytes, sha256) = durable::measure(&path).unwrap();
        record.runs.push(Run {
            sequence: SequenceId(0),
            segment: crate::assignment::tests::segment(0),
            ordinal: 0,
            file: "run-1".into(),
            bytes,
            sha256,
            rows: 1,
            unknown: Default::default(),
        });
        fs::write(folder.rows().join("stray"), b"x").unwrap();
        assert_eq!(folder.inspect(&record).unwrap(), LocalState::Intact);
        assert!(!folder.rows().join("stray").exists());
        assert_eq!(folder.disk().own(), 10);
        for damage in [&b"012345678"[..], b"0123456789x", b"0123456780"] {
            fs::write(&path, damage).unwrap();
            assert!(matches!(folder.inspect(&record).unwrap(), LocalState::Lost(_)));
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(folder.inspect(&record).unwrap(), LocalState::Lost(_)));
        folder.remove().unwrap();
        assert_eq!(folder.disk().budget().used(), 0);
    }
}
