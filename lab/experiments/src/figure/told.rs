//! What indef is told: reads, as it would have traced them.

use std::{io, path::Path};

use units::FileRange;

/// The reads as a profile of lines (docs/profile.md).
pub(super) fn lines(path: &Path, ranges: &[FileRange]) -> io::Result<String> {
    let path = path.to_str();
    let path =
        path.ok_or_else(|| io::Error::other("a folder for experiments that is not UTF-8"))?;
    let mut text = format!("indef-profile 1\nfile 1 - - {path}\n");
    for range in ranges {
        text += &format!("read 1 {} {} direct\n", range.start.0, range.len.0);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_told_in_indefs_own_lines() {
        let ranges = [FileRange::new(0, 4096), FileRange::new(8192, 4096)];
        assert_eq!(
            lines(Path::new("/mnt/file"), &ranges).unwrap(),
            "indef-profile 1\nfile 1 - - /mnt/file\nread 1 0 4096 direct\nread 1 8192 4096 direct\n"
        );
    }
}
