//! Programs that are found by their name, never in the working directory: others may write there.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The program of that name in a folder of `PATH` that is absolute; a path stands for itself. An empty entry of `PATH`
/// would mean the working directory.
///
/// # Errors
/// Where no such folder has it.
pub fn program(name: impl AsRef<Path>) -> io::Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    find(name.as_ref(), std::env::split_paths(&folders))
}

fn find(name: &Path, folders: impl Iterator<Item = PathBuf>) -> io::Result<PathBuf> {
    if name.parent().is_none_or(|folder| !folder.as_os_str().is_empty()) {
        return Ok(name.to_owned());
    }
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    let mut candidates = folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
    candidates.find(is_program).ok_or_else(|| {
        let text = format!("no absolute folder of PATH has a program `{}`", name.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// A list of folders, such as `PYTHONPATH`, without the entries that mean the working directory: empty ones and `.`.
#[must_use]
pub fn without_working_directory(folders: &str) -> String {
    let is_elsewhere = |entry: &&str| Path::new(entry).components().any(|part| part != std::path::Component::CurDir);
    folders.split(':').filter(is_elsewhere).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::{find, without_working_directory};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};

    #[test]
    fn programs_are_found_in_absolute_folders_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tool");
        fs::write(&path, "").expect("a file");
        let folders =
            |first: &str| vec![PathBuf::from(first), PathBuf::from("/no/such/folder"), folder.path().to_owned()];
        assert!(find(Path::new("tool"), folders("").into_iter()).is_err(), "it is no program yet");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its mode");
        for relative in ["", ".", "src/.."] {
            assert_eq!(
                find(Path::new("tool"), folders(relative).into_iter()).ok().as_ref(),
                Some(&path),
                "{relative:?}"
            );
        }
        let own = std::env::current_dir().expect("a directory");
        let relative = relative_to(&own, folder.path());
        assert!(find(Path::new("tool"), [relative].into_iter()).is_err(), "a relative folder is searched");
        assert_eq!(find(Path::new("./tool"), folders("").into_iter()).ok(), Some(PathBuf::from("./tool")));
        assert_eq!(find(Path::new("/bin/sh"), std::iter::empty()).ok(), Some(PathBuf::from("/bin/sh")));
    }

    /// `to`, from `from` upwards to the root and down again.
    fn relative_to(from: &Path, to: &Path) -> PathBuf {
        let up = from.components().skip(1).map(|_| "..").collect::<PathBuf>();
        up.join(to.strip_prefix("/").expect("an absolute path"))
    }

    #[test]
    fn entries_that_mean_the_working_directory_are_left_out() {
        for (given, expected) in [
            ("", ""),
            (":", ""),
            (".", ""),
            ("./", ""),
            (":/a", "/a"),
            ("/a:", "/a"),
            ("/a::b:.", "/a:b"),
            ("/a/.:./src", "/a/.:./src"),
        ] {
            assert_eq!(without_working_directory(given), expected, "{given:?}");
        }
    }
}
