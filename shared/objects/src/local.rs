//! A local folder as a store. Reading and listing go through the client library; writing does not, since what
//! was answered for must survive a power cut: contents are synced, then named by a rename, then the folder is
//! synced.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Bytes per read of a local copy.
const CHUNK: usize = 1 << 20;

/// Copies `source` to `dest`, which appears complete or not at all. Answers size and SHA-256 of what was written.
pub(crate) fn copy_in(source: &Path, dest: &Path) -> io::Result<(u64, [u8; 32])> {
    let mut from = File::open(source)?;
    let partial = with_suffix(dest, ".partial");
    let written = in_folder(dest, || {
        let mut to = File::create(&partial)?;
        let mut hasher = Sha256::new();
        let mut size = 0_u64;
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = from.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            to.write_all(&chunk[..read])?;
            hasher.update(&chunk[..read]);
            size += read as u64;
        }
        to.sync_all()?;
        fs::rename(&partial, dest)?;
        Ok((size, hasher.finalize().into()))
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    let written = written?;
    sync_parent(dest)?;
    Ok(written)
}

/// Makes `dest` the same file as `source`, replacing what stood there. Where the file system has no hard links
/// the bytes are copied.
pub(crate) fn link(source: &Path, dest: &Path) -> io::Result<()> {
    // The second name stands beside the staged one, where the sweep finds it if this process dies here.
    let second = with_suffix(source, &format!(".{}.link", uuid::Uuid::new_v4().simple()));
    let linked = match fs::hard_link(source, &second) {
        Ok(()) => in_folder(dest, || fs::rename(&second, dest)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => copy_in(source, dest).map(|_| ()),
    };
    // Renaming onto a link to the same file leaves both names; and a failed rename leaves this one.
    let _ = fs::remove_file(&second);
    linked?;
    sync_parent(dest)
}

/// Removes a file; one that is not there is fine. A folder that this leaves empty goes too, up to `root`.
pub(crate) fn remove(path: &Path, root: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    let mut folder = path.parent();
    while let Some(here) = folder.filter(|here| *here != root && here.starts_with(root)) {
        if fs::remove_dir(here).is_err() {
            break;
        }
        folder = here.parent();
    }
    Ok(())
}

/// Runs `write`, making the folder of `dest` first. The folder may be removed as empty by another thread between
/// the two, so it is made again a few times.
fn in_folder<T>(dest: &Path, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let folder = dest.parent().unwrap_or(dest);
    for _ in 0..8 {
        make_folder(folder)?;
        match write() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {}
            other => return other,
        }
    }
    write()
}

/// Makes a folder and those above it, each durable in the one above.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_parent(folder)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => match File::open(folder) {
            Ok(folder) => folder.sync_all(),
            // Removed as empty meanwhile: then what was made in it is gone, and its maker is told by its own call.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        },
        None => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linking_twice_is_the_same_as_once_and_leaves_no_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let (source, dest) = (folder.path().join("s/a"), folder.path().join("f/x/b"));
        fs::create_dir(folder.path().join("s")).unwrap();
        fs::write(&source, b"rows").unwrap();
        for _ in 0..2 {
            link(&source, &dest).unwrap();
            assert_eq!(fs::read(&dest).unwrap(), b"rows");
            assert_eq!(fs::read_dir(folder.path().join("s")).unwrap().count(), 1);
            assert_eq!(fs::read_dir(folder.path().join("f/x")).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("f/b");
        assert_eq!(
            copy_in(&folder.path().join("absent"), &dest).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(copy_in(folder.path(), &dest).is_err(), "a folder is no file");
        assert!(!dest.exists());
        assert_eq!(fs::read_dir(folder.path().join("f")).unwrap().count(), 0);
    }

    #[test]
    fn removing_clears_empty_folders_but_never_the_root() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a/b/c");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, b"").unwrap();
        fs::write(root.path().join("a/other"), b"").unwrap();
        remove(&file, root.path()).unwrap();
        remove(&file, root.path()).unwrap();
        assert!(!root.path().join("a/b").exists());
        assert!(root.path().join("a/other").exists());
        remove(&root.path().join("a/other"), root.path()).unwrap();
        assert!(root.path().is_dir() && !root.path().join("a").exists());
    }
}
