//! Programs of the host, with the files that they need to run elsewhere.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::LabError;

/// Makers and checkers of file systems, and other programs that experiments in a guest use.
pub(crate) const TOOLS: [&str; 16] = [
    "mkfs.ext4",
    "e2fsck",
    "mkfs.xfs",
    "xfs_repair",
    "xfs_io",
    "mkfs.btrfs",
    "btrfs",
    "mkfs.f2fs",
    "fsck.f2fs",
    "bash",
    "dd",
    "findmnt",
    "fio",
    "losetup",
    "mount",
    "umount",
];

/// The file named `name`: a path, or, without a slash, a program on the `PATH` (and in the
/// folders of administrators' programs).
pub(crate) fn find(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 || name.is_absolute() {
        return name.is_file().then(|| absolute(name)).flatten();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| {
            fs::metadata(path)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
        .and_then(|path| absolute(&path))
}

fn absolute(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()
}

/// The shared libraries that a program needs, its loader among them; none for a file that is no
/// dynamic program.
pub(crate) fn libraries(program: &Path) -> Result<Vec<PathBuf>, LabError> {
    // It exits with 1 for a file that is no dynamic program.
    let listed = match Command::new("ldd").arg(program).output() {
        Ok(listed) => String::from_utf8_lossy(&listed.stdout).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LabError::missing("ldd is not installed"));
        }
        Err(error) => return Err(LabError::at(Path::new("ldd"))(error)),
    };
    listed.lines().filter_map(library).collect()
}

/// Files from this size on are worth stripping: those of cargo with their tables for debuggers.
const LARGE: u64 = 4 << 20;

/// The content of a file for a guest, which has it in memory and unpacks it at each boot: without the
/// tables for debuggers, where it has some and `strip` is installed.
pub(crate) fn content(file: &Path, length: u64) -> Result<Vec<u8>, LabError> {
    if length >= LARGE {
        let stripped = tempfile::NamedTempFile::new().map_err(LabError::at(file))?;
        let output = Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(stripped.path())
            .arg(file)
            .output();
        // It fails for what is no program.
        if output.is_ok_and(|output| output.status.success()) {
            return fs::read(stripped.path()).map_err(LabError::at(stripped.path()));
        }
    }
    fs::read(file).map_err(LabError::at(file))
}

/// `libelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`
fn library(line: &str) -> Option<Result<PathBuf, LabError>> {
    let line = line.trim();
    if line.ends_with("=> not found") {
        return Some(Err(LabError::Request(format!(
            "a library is missing: {line}"
        ))));
    }
    // The message for a program that brings newer libraries of its own.
    if line.contains(": version `") {
        return None;
    }
    let path = line.rsplit_once("=> ").map_or(line, |(_, path)| path);
    let path = path.split(" (").next()?;
    path.starts_with('/').then(|| Ok(PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_is_understood() {
        let path = |line| library(line).map(|path| path.unwrap().display().to_string());
        assert_eq!(
            path("\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)").as_deref(),
            Some("/lib/x86_64-linux-gnu/libz.so.1")
        );
        assert_eq!(
            path("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)").as_deref(),
            Some("/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert_eq!(path("\tstatically linked"), None);
        let newer = "/opt/mkfs.xfs: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/mkfs.xfs)";
        assert_eq!(path(newer), None);
        assert!(library("\tlibq.so => not found").unwrap().is_err());
    }

    #[test]
    fn programs_are_found_on_the_path_and_files_where_they_are() {
        let shell = find(Path::new("sh")).unwrap();
        assert!(shell.is_absolute());
        assert!(!libraries(&shell).unwrap().is_empty());
        assert_eq!(find(Path::new("no-such-program-here")), None);
        assert_eq!(find(Path::new("./no-such-file")), None);
        assert_eq!(find(&shell), Some(shell));
    }
}
