//! A kernel's modules: the selection that a guest gets, and the information in each of them.
//!
//! Debian's packages bring the modules but not the index that `modprobe` wants (`modules.dep`,
//! `modules.alias`): the installation of a package makes it. Here it is made for the guest's
//! modules, from the section `.modinfo` of each, so that the kernel can load a file system or a
//! checksum by itself when it first needs it, as on an installed system.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{LabError, error::output_of};

/// Modules loaded before anything else: the channel to the host, and disks.
pub(crate) const AT_BOOT: [&str; 3] = ["virtio_pci", "virtio_console", "virtio_blk"];

/// Modules that every guest has, beside those that they need; they are loaded when first used.
pub const KEPT: [&str; 23] = [
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "9p",
    "9pnet_virtio",
    "loop",
    "overlay",
    "ext4",
    "xfs",
    "btrfs",
    "f2fs",
    "zonefs",
    "nvme",
    "null_blk",
    "mq-deadline",
    // The algorithms that file systems request by name from the kernel's cryptography.
    "crc32c_generic",
    "crc32c-intel",
    "crc32_generic",
    "xxhash_generic",
    "sha256_generic",
    "blake2b_generic",
    "nls_utf8",
    "fuse",
];

/// All modules of one kernel.
pub(crate) struct Modules {
    /// The file of each module, by its name with underscores.
    files: BTreeMap<String, PathBuf>,
    /// Names of the modules that are part of the kernel's image.
    builtin: BTreeSet<String>,
}

/// A module for a guest.
pub(crate) struct Module {
    /// Its name, with underscores.
    pub(crate) name: String,
    /// The file's content, not compressed.
    pub(crate) content: Vec<u8>,
    /// The modules to load before it, direct dependencies only.
    depends: Vec<String>,
    /// Other names by which the kernel requests it.
    aliases: Vec<String>,
}

impl Modules {
    pub(crate) fn below(folder: &Path) -> Result<Self, LabError> {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.join("kernel")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(LabError::at(&folder))? {
                let path = entry.map_err(LabError::at(&folder))?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(name) = name_of(&path) {
                    // One that was unpacked is there a second time, without the ending.
                    let file = files.entry(name).or_insert_with(|| path.clone());
                    if !is_packed(&path) {
                        *file = path;
                    }
                }
            }
        }
        let path = folder.join("modules.builtin");
        let builtin = fs::read_to_string(&path).map_err(LabError::at(&path))?;
        Ok(Self {
            files,
            builtin: builtin
                .lines()
                .filter_map(|line| name_of(Path::new(line)))
                .collect(),
        })
    }

    /// Use this file in place of the kernel's own module.
    pub(crate) fn replace(&mut self, name: &str, file: &Path) {
        self.files.insert(normal(name), file.to_owned());
    }

    /// These modules and their dependencies, in an order in which they can be loaded. Modules that
    /// are part of the image are left out; a name unknown to this kernel is left out only if it is
    /// in [`KEPT`].
    pub(crate) fn with_dependencies(&self, names: &[String]) -> Result<Vec<Module>, LabError> {
        let mut closed = Vec::new();
        let mut met = BTreeSet::new();
        for name in KEPT {
            if self.files.contains_key(&normal(name)) {
                self.add(&normal(name), &mut met, &mut closed)?;
            }
        }
        for name in names {
            self.add(&normal(name), &mut met, &mut closed)?;
        }
        Ok(closed)
    }

    /// The content of `modules.builtin`, by which `modprobe` knows the modules that it need not
    /// load.
    pub(crate) fn builtin_index(&self) -> String {
        self.builtin
            .iter()
            .map(|name| format!("kernel/{name}.ko\n"))
            .collect()
    }

    fn add(
        &self,
        name: &str,
        met: &mut BTreeSet<String>,
        closed: &mut Vec<Module>,
    ) -> Result<(), LabError> {
        if self.builtin.contains(name) || !met.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self
            .files
            .get(name)
            .ok_or_else(|| LabError::Request(format!("the guest's kernel has no module {name}")))?;
        let module = Module::read(name, path)?;
        for needed in &module.depends {
            self.add(needed, met, closed)?;
        }
        closed.push(module);
        Ok(())
    }
}

impl Module {
    fn read(name: &str, path: &Path) -> Result<Self, LabError> {
        let content = if is_packed(path) {
            unpack(path)?
        } else {
            fs::read(path).map_err(LabError::at(path))?
        };
        let info = section(&content, b".modinfo")
            .ok_or_else(|| LabError::Request(format!("{} is no module", path.display())))?;
        let said = |key: &str| {
            info.split(|&byte| byte == 0)
                .filter_map(|entry| std::str::from_utf8(entry).ok())
                .filter_map(|entry| entry.strip_prefix(key)?.strip_prefix('='))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let depends = said("depends")
            .iter()
            .flat_map(|names| names.split(','))
            .filter(|name| !name.is_empty())
            .map(normal)
            .collect();
        let aliases = said("alias");
        Ok(Self {
            name: name.to_owned(),
            depends,
            aliases,
            content,
        })
    }

    /// Its path below `/lib/modules/VERSION`.
    pub(crate) fn place(&self) -> String {
        format!("kernel/{}.ko", self.name)
    }
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "xz")
}

/// The content of a packed module, which is kept beside it for the next guest where that is possible.
fn unpack(path: &Path) -> Result<Vec<u8>, LabError> {
    let content = output_of(
        Command::new("xz")
            .args(["--decompress", "--stdout"])
            .arg(path),
    )?;
    let plain = path.with_extension("");
    // Other processes may be doing the same.
    let new = plain.with_extension(std::process::id().to_string());
    let _ = fs::write(&new, &content).and_then(|()| fs::rename(&new, &plain));
    Ok(content)
}

/// The content of `modules.dep`: each module with all modules to load before it, the last one
/// first.
pub(crate) fn dependency_index(modules: &[Module]) -> String {
    let by_name: BTreeMap<&str, &Module> = modules
        .iter()
        .map(|module| (module.name.as_str(), module))
        .collect();
    modules
        .iter()
        .map(|module| {
            let mut needed: Vec<&str> = Vec::new();
            let mut next: Vec<&str> = module.depends.iter().map(String::as_str).collect();
            while let Some(name) = next.pop() {
                if let Some(module) = by_name.get(name) {
                    // Found again at a deeper level: it must come later in the list, to be loaded
                    // earlier.
                    needed.retain(|&known| known != name);
                    needed.push(name);
                    next.extend(module.depends.iter().map(String::as_str));
                }
            }
            let places: Vec<String> = needed.iter().map(|name| by_name[name].place()).collect();
            format!("{}: {}\n", module.place(), places.join(" "))
        })
        .collect()
}

/// The content of `modules.alias`.
pub(crate) fn alias_index(modules: &[Module]) -> String {
    modules
        .iter()
        .flat_map(|module| {
            module
                .aliases
                .iter()
                .map(|alias| format!("alias {alias} {}\n", module.name))
        })
        .collect()
}

/// The name with underscores: dashes and underscores in a module's name are equivalent.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let name = file
        .strip_suffix(".ko")
        .or_else(|| file.strip_suffix(".ko.xz"))?;
    Some(normal(name))
}

/// The content of a section of a 64-bit little-endian ELF file (ELF-64 object file format 1.5).
fn section<'a>(elf: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let number = |at: usize, width: usize| -> Option<usize> {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(elf.get(at..at.checked_add(width)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    // e_shoff, e_shentsize, e_shnum, e_shstrndx
    let (table, size) = (number(0x28, 8)?, number(0x3a, 2)?);
    let (count, names) = (number(0x3c, 2)?, number(0x3e, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    // sh_offset, sh_size
    let content = |header: usize| {
        let start = number(header.checked_add(0x18)?, 8)?;
        elf.get(start..start.checked_add(number(header.checked_add(0x20)?, 8)?)?)
    };
    let names = content(header(names)?)?;
    (0..count).find_map(|index| {
        let header = header(index)?;
        let name = names.get(number(header, 4)?..)?;
        (name.split(|&byte| byte == 0).next()? == wanted).then(|| content(header))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, depends: &[&str]) -> Module {
        Module {
            name: name.into(),
            content: Vec::new(),
            depends: depends.iter().map(|&name| name.into()).collect(),
            aliases: vec![format!("fs-{name}")],
        }
    }

    #[test]
    fn whatever_a_module_needs_comes_after_it_in_the_index() {
        let modules = [
            module("a", &[]),
            module("b", &["a"]),
            module("c", &["a", "b"]),
        ];
        assert_eq!(
            dependency_index(&modules),
            "kernel/a.ko: \nkernel/b.ko: kernel/a.ko\nkernel/c.ko: kernel/b.ko kernel/a.ko\n"
        );
        assert_eq!(alias_index(&modules[..1]), "alias fs-a a\n");
    }

    #[test]
    fn a_section_is_found_in_our_own_binary_and_not_in_noise() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(section(&own, b".no-such"), None);
        assert!(section(&own, b".text").is_some_and(|code| !code.is_empty()));
        assert_eq!(section(&own[..100], b".text"), None);
        assert_eq!(section(&[0xff; 4096], b".text"), None);
    }

    #[test]
    fn names_are_the_same_with_dashes_and_underscores() {
        let name = name_of(Path::new("kernel/arch/x86/crypto/crc32c-intel.ko.xz"));
        assert_eq!(name.as_deref(), Some("crc32c_intel"));
        assert_eq!(name_of(Path::new("modules.order")), None);
    }
}
