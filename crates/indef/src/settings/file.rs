//! The files of the configuration, and whom they are taken from.
//!
//! What root's service does follows from them. So root reads only what root alone could have written: each file, and
//! each folder above it, belongs to root, and nobody else may write to it. A folder above may be sticky, like `/tmp`,
//! where nobody may take another's entry away; that of drop-ins may not, as others could add some. The file is looked at
//! once it is open; a link is followed to a place that has to be as safe. Other users read what they name.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::OFlags,
    io::Errno,
    process::{Uid, geteuid},
};

/// No configuration is longer.
const LONGEST: u64 = 1 << 20;
/// Links from one to the next.
const MOST_LINKS: usize = 8;

/// Why a file is not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is not there.
    Absent,
    /// Another reason, for a person.
    Because(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Absent,
            _ => Self::Because(crate::refusal::plain(&error)),
        }
    }
}

/// The text of a file.
pub(super) fn read(path: &Path) -> Result<String, Unread> {
    let file = match geteuid().is_root() {
        true => open_safely(path)?,
        false => open(path, OFlags::empty())?,
    };
    if !file.metadata()?.is_file() {
        return Err(Unread::Because("is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(Unread::Because("is longer than 1 MiB".to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| Unread::Because("is not UTF-8".to_owned()))
}

/// The drop-ins of a file: `FILE.d/*.toml`, in the order of their names. The folder may be absent.
pub(super) fn drop_ins(path: &Path) -> Result<Vec<PathBuf>, Unread> {
    let folder = folder_of_drop_ins(path);
    let entries = fs::read_dir(&folder)?;
    if geteuid().is_root() {
        let folder = fs::canonicalize(&folder)?;
        ensure_safe(&folder, &fs::symlink_metadata(&folder)?, false)?;
        ensure_safe_above(&folder)?;
    }
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let is_one = Path::new(&name).extension() == Some(OsStr::new("toml"));
        if is_one && !name.as_bytes().starts_with(b".") {
            found.push(folder.join(name));
        }
    }
    found.sort();
    Ok(found)
}

/// `FILE.d`.
pub(super) fn folder_of_drop_ins(path: &Path) -> PathBuf {
    let mut folder = path.as_os_str().to_owned();
    folder.push(".d");
    folder.into()
}

fn open(path: &Path, further: OFlags) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | further;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

/// Open a file that root alone could have written.
fn open_safely(path: &Path) -> Result<File, Unread> {
    let mut path = std::path::absolute(path)?;
    for _ in 0..MOST_LINKS {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Unread::Because("is no regular file".to_owned()));
        };
        // Nobody else can change what is safe, between this look and the opening either.
        let folder = fs::canonicalize(folder)?;
        let real = folder.join(name);
        ensure_safe_above(&real)?;
        match open(&real, OFlags::NOFOLLOW) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                path = folder.join(fs::read_link(&real)?);
            }
            file => {
                let file = file?;
                ensure_safe(&real, &file.metadata()?, false)?;
                return Ok(file);
            }
        }
    }
    Err(Unread::Because("is a link to a link, too often".to_owned()))
}

/// All folders above.
fn ensure_safe_above(path: &Path) -> Result<(), Unread> {
    for above in path.ancestors().skip(1) {
        ensure_safe(above, &fs::symlink_metadata(above)?, true)?;
    }
    Ok(())
}

/// Make sure that nobody but root can change something.
fn ensure_safe(path: &Path, status: &Metadata, may_be_sticky: bool) -> Result<(), Unread> {
    let sticky = may_be_sticky && status.mode() & 0o1000 != 0;
    let why = if status.uid() != Uid::ROOT.as_raw() {
        format!("belongs to user {}", status.uid())
    } else if status.mode() & 0o022 != 0 && !sticky {
        "can be written by others".to_owned()
    } else {
        return Ok(());
    };
    Err(Unread::Because(format!(
        "{} {why}, and root reads only a configuration that root alone can write (chown root, chmod go-w)",
        crate::output::Name(path)
    )))
}
