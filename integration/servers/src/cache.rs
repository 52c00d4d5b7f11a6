//! Where downloaded and built things are kept: outside the checkout, shared by all checkouts of one user.
//!
//! Owns the cache directory (`TIDEGATE_CACHE`, else `$XDG_CACHE_HOME/tidegate`, else `~/.cache/tidegate`).
//! Promises that an entry is whole when it is there (made aside, then renamed) and made once, however many
//! processes ask at the same time. Never removes an entry: removing the directory is always safe.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The cache directory; made if absent.
pub fn directory() -> Result<PathBuf> {
    let chosen = non_empty("TIDEGATE_CACHE")
        .or_else(|| non_empty("XDG_CACHE_HOME").map(|base| base.join("tidegate")))
        .or_else(|| non_empty("HOME").map(|home| home.join(".cache/tidegate")));
    let Some(directory) = chosen else {
        bail!("there is no place for downloads: set TIDEGATE_CACHE to a directory (HOME is not set either)");
    };
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot make the cache directory {}", directory.display()))?;
    Ok(std::path::absolute(&directory)?)
}

fn non_empty(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The entry `name`, made by `make` in an empty directory if it is not there yet.
pub(crate) fn entry(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    entry_in(&directory()?, name, make)
}

/// Like [`entry`], but made at its final place, for what remembers its own path (a Python environment);
/// it counts as whole only when its mark has been written.
pub(crate) fn entry_in_place(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let directory = directory()?;
    let place = directory.join(name);
    let mark = place.join(".whole");
    let _lock = lock(&directory, name)?;
    if mark.exists() {
        return Ok(place);
    }
    remove(&place)?;
    make(&place)?;
    File::create(&mark).with_context(|| format!("cannot write {}", mark.display()))?;
    Ok(place)
}

fn entry_in(directory: &Path, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let place = directory.join(name);
    if place.exists() {
        return Ok(place);
    }
    let _lock = lock(directory, name)?;
    if place.exists() {
        return Ok(place);
    }
    let aside = directory.join(format!("{name}.unfinished"));
    remove(&aside)?;
    fs::create_dir_all(&aside)?;
    make(&aside)?;
    fs::rename(&aside, &place).with_context(|| format!("cannot put {} into place", place.display()))?;
    Ok(place)
}

fn remove(place: &Path) -> Result<()> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the unfinished {}", place.display()))
        }
        _ => Ok(()),
    }
}

/// Held while an entry is made; the system lets go of it when its holder dies.
fn lock(directory: &Path, name: &str) -> Result<File> {
    let path = directory.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    file.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn an_entry_wanted_by_many_at_once_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let place = entry_in(directory.path(), "jars", |aside| {
                        made.fetch_add(1, Ordering::SeqCst);
                        Ok(fs::write(aside.join("a.jar"), b"bytes")?)
                    })
                    .unwrap();
                    assert_eq!(fs::read(place.join("a.jar")).unwrap(), b"bytes");
                });
            }
        });
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_entry_that_could_not_be_made_is_made_by_the_next_who_asks() {
        let directory = tempfile::tempdir().unwrap();
        let failed = entry_in(directory.path(), "jars", |aside| {
            fs::write(aside.join("half.jar"), b"by")?;
            bail!("the download broke off")
        });
        assert!(failed.is_err());
        let place = entry_in(directory.path(), "jars", |aside| {
            Ok(fs::write(aside.join("a.jar"), b"bytes")?)
        })
        .unwrap();
        assert!(place.join("a.jar").exists());
        assert!(!place.join("half.jar").exists());
    }
}
