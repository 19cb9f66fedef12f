//! The mount table of this process, `/proc/self/mountinfo` (proc(5)).

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, StatxFlags, open},
    io::Errno,
};

use crate::root::{id, look_at, reopen};

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The kernel's number for it (`stx_mnt_id`).
    pub id: u64,
    /// The directory of the file system that is mounted: `/` for all of it.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its type: `ext4`.
    pub fs_type: String,
    /// The source of the mount: `/dev/sda1`.
    pub source: PathBuf,
    /// Options of the mount (`rw`, `noatime`) and of the file system (`data=ordered`), in order.
    pub options: Vec<String>,
}

impl Mount {
    /// Every entry, in the order in which they were mounted.
    ///
    /// # Errors
    ///
    /// `/proc` is not there.
    pub fn all() -> io::Result<Vec<Self>> {
        let table = fs::read(Path::new("/proc/self/mountinfo"))?;
        let lines = table.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(Self::parse).collect())
    }

    /// The entry with this id.
    ///
    /// # Errors
    ///
    /// `/proc` is not there.
    pub fn by_id(id: u64) -> io::Result<Option<Self>> {
        let mut all = Self::all()?.into_iter();
        Ok(all.find(|mount| mount.id == id))
    }

    /// Open the directory on which it is mounted, if that is still on this device: a user may rename
    /// directories above it.
    ///
    /// # Errors
    ///
    /// The kernel's error; `EXDEV` where it is another file system by now.
    pub fn open(&self, dev: u64) -> Result<File, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let named = open(&self.point, flags, Mode::empty())?;
        let status = look_at(&named, StatxFlags::INO)?;
        if id(&status).dev != dev {
            return Err(Errno::XDEV);
        }
        reopen(&named, OFlags::RDONLY | OFlags::DIRECTORY).map(File::from)
    }

    /// Whether the option is set, as a whole word: `data=journal`.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// The value of an option that has one: `journal` of `data=journal`.
    #[must_use]
    pub fn value_of(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter();
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// One line: `id parent major:minor root point options [tags…] - type source super-options`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let root = unescape(fields.nth(2)?);
        let point = unescape(fields.next()?);
        let mount_options = fields.next()?;
        fields.find(|field| *field == b"-")?;
        let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
        let source = unescape(fields.next()?);
        let super_options = fields.next().unwrap_or_default();
        let options = [mount_options, super_options]
            .into_iter()
            .flat_map(|list| list.split(|byte| *byte == b','))
            .map(|option| String::from_utf8_lossy(option).into_owned())
            .filter(|option| !option.is_empty())
            .collect();
        Some(Self {
            id,
            root,
            point,
            fs_type,
            source,
            options,
        })
    }
}

/// Undo the escapes of `/proc`: blanks, tabs, newlines and backslashes are written as a backslash
/// and three octal digits.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let code = (byte == b'\\').then(|| rest.get(..3)).flatten();
        let octal = code.and_then(|digits| {
            digits.iter().try_fold(0u8, |value, digit| {
                let digit = digit.checked_sub(b'0').filter(|d| *d < 8)?;
                value.checked_mul(8)?.checked_add(digit)
            })
        });
        match octal {
            Some(value) => {
                bytes.push(value);
                rest = &rest[3..];
            }
            None => bytes.push(byte),
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_tags_and_escapes() {
        let line = br"36 35 98:0 /of\040it /mnt\0402\011x rw,noatime master:1 shared:2 - ext4 /dev/sd\134a rw,data=journal";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.id, 36);
        assert_eq!(mount.root, PathBuf::from("/of it"));
        assert_eq!(mount.point, PathBuf::from("/mnt 2\tx"));
        assert_eq!(mount.fs_type, "ext4");
        assert_eq!(mount.source, PathBuf::from("/dev/sd\\a"));
        assert!(mount.has_option("data=journal") && mount.has_option("noatime"));
        assert!(!mount.has_option("data"));
        assert_eq!(mount.value_of("data"), Some("journal"));
        assert_eq!(mount.value_of("dat"), None);
    }

    #[test]
    fn short_and_strange_lines_are_no_mounts() {
        for line in [&b""[..], b"x", b"1 2 3", b"1 2 3:4 / / rw ext4 a b"] {
            assert_eq!(Mount::parse(line), None);
        }
        assert_eq!(unescape(br"a\9\777\04"), PathBuf::from(r"a\9\777\04"));
    }

    #[test]
    fn the_root_is_found_by_its_id() {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
        let status = statx(CWD, "/", AtFlags::empty(), StatxFlags::MNT_ID).unwrap();
        let mount = Mount::by_id(status.stx_mnt_id).unwrap().unwrap();
        assert_eq!(mount.point, PathBuf::from("/"));
    }
}
