//! Extracts the kernel proper from a compressed image.
//!
//! A `vmlinuz` unpacks itself when it boots, which a translating QEMU takes up to 6 s for; unpacked
//! beforehand, the same kernel is entered directly (by its PVH note). Format: the kernel's
//! Documentation/arch/x86/boot.rst.

use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    path::Path,
    process::Command,
};

use crate::{LabError, error::output_of};

/// `HdrS`, the mark of a setup header.
const MARK: (usize, &[u8]) = (0x202, b"HdrS");
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;

/// The payload's compression formats, each with the program that decompresses it.
const FORMATS: [(&[u8], &str); 2] = [
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
];

/// The uncompressed kernel in `vmlinuz`; `None` where the format is unknown here, or its program is
/// not installed: then the image can still unpack itself.
pub(crate) fn unpack(vmlinuz: &[u8], work: &Path) -> Result<Option<Vec<u8>>, LabError> {
    let Some(payload) = payload(vmlinuz) else {
        return Ok(None);
    };
    let Some((_, program)) = FORMATS.iter().find(|(mark, _)| payload.starts_with(mark)) else {
        return Ok(None);
    };
    let write = || -> std::io::Result<File> {
        let mut file = tempfile::tempfile_in(work)?;
        file.write_all(payload)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    };
    let input = write().map_err(LabError::at(work))?;
    match output_of(Command::new(program).arg("-dc").stdin(input)) {
        Ok(kernel) => Ok(Some(kernel)),
        Err(LabError::Unavailable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The compressed kernel, without the size that is appended to it.
fn payload(vmlinuz: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| -> Option<usize> {
        let bytes = vmlinuz.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if !vmlinuz.get(MARK.0..)?.starts_with(MARK.1) {
        return None;
    }
    // 0 means 4, for the sake of images that are older than the field.
    let setup = match usize::from(*vmlinuz.get(SETUP_SECTORS)?) {
        0 => 4,
        sectors => sectors,
    };
    let start = (setup + 1) * SECTOR + number(PAYLOAD_OFFSET)?;
    let length = number(PAYLOAD_LENGTH)?.checked_sub(4)?;
    vmlinuz.get(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(setup_sectors: u8, length: u32) -> Vec<u8> {
        let mut image = vec![0; 4096];
        image[SETUP_SECTORS] = setup_sectors;
        image[MARK.0..][..4].copy_from_slice(MARK.1);
        image[PAYLOAD_OFFSET..][..4].copy_from_slice(&16_u32.to_le_bytes());
        image[PAYLOAD_LENGTH..][..4].copy_from_slice(&length.to_le_bytes());
        image[2 * SECTOR + 16..][..8].copy_from_slice(b"payload!");
        image
    }

    #[test]
    fn the_payload_is_where_the_header_says() {
        assert_eq!(payload(&image(1, 12)), Some(&b"payload!"[..]));
    }

    #[test]
    fn what_is_no_image_has_no_payload() {
        assert_eq!(payload(&image(1, 3)), None);
        assert_eq!(payload(&image(255, 12)), None);
        assert_eq!(payload(&image(1, u32::MAX)), None);
        assert_eq!(payload(&[0; 4096]), None);
        assert_eq!(payload(&[]), None);
    }
}
