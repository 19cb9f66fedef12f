//! The task of one guest, and the archive that it boots from.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::BufWriter,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    Kernel, LabError,
    archive::Archive,
    modules::{AT_BOOT, alias_index, dependency_index},
    programs,
};

const INIT: &[u8] = include_bytes!("../files/init");
const ZNS: &[u8] = include_bytes!("../files/zns");
const SERVE: &[u8] = include_bytes!("../files/serve");
const ENTER: &[u8] = include_bytes!("../files/enter");
const RESET: &[u8] = include_bytes!("../files/reset");

/// Configuration files that the tools want to find.
const SETTINGS: [&str; 1] = ["/etc/mke2fs.conf"];

/// The files to put into the guest, and the command to run there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// Files or programs, in a form that [`programs::find`] understands.
    pub(crate) copy: Vec<PathBuf>,
    pub(crate) with_tools: bool,
    /// Modules to load before the command, beside those at boot.
    pub(crate) load: Vec<String>,
    /// Modules that the guest has, to be loaded when needed.
    pub(crate) keep: Vec<String>,
    /// Modules of our own, in place of the kernel's.
    pub(crate) replace: Vec<(String, PathBuf)>,
    pub(crate) share: bool,
    /// Whether the guest stays, for further commands.
    pub(crate) standing: bool,
    /// Settings for `/lab/zns`, as lines of shell; empty for no zoned SSD.
    pub(crate) zns: String,
    /// The command's working directory; by default that of this process.
    pub(crate) here: Option<PathBuf>,
    /// The command; empty for a shell.
    pub(crate) command: Vec<OsString>,
}

impl Job {
    /// Write the archive that `kernel` boots from to `path`. Returns the files of the host in it.
    pub(crate) fn write(&self, kernel: &Kernel, path: &Path) -> Result<Files, LabError> {
        let out = BufWriter::new(File::create(path).map_err(LabError::at(path))?);
        let mut root = Root {
            archive: Archive::new(out).map_err(LabError::at(path))?,
            path,
            there: BTreeMap::new(),
        };
        for folder in ["proc", "sys", "run", "tmp", "root", "share", "mnt", "lab"] {
            root.folder(folder)?;
        }
        root.file("init", 0o755, INIT)?;
        for (name, script) in [
            ("lab/zns", ZNS),
            ("lab/serve", SERVE),
            ("lab/enter", ENTER),
            ("lab/reset", RESET),
        ] {
            root.file(name, 0o755, script)?;
        }
        root.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
        root.file("etc/group", 0o644, b"root:x:0:\n")?;

        let command = self.add_command(kernel, &mut root)?;
        root.file("lab/command", 0o755, &command)?;
        self.add_files(&mut root)?;
        self.add_modules(kernel, &mut root)?;
        root.file("lab/job", 0o644, self.settings().as_bytes())?;
        add_busybox(kernel, &mut root)?;
        let there = root.there;
        root.archive.finish().map_err(LabError::at(path))?;
        Ok(there)
    }

    /// For a guest that stays: writes to `folder` the command, and an archive of the files that the
    /// guest lacks for it. `there` is the set of the host's files that the guest has; it is
    /// updated.
    pub(crate) fn write_more(
        &self,
        kernel: &Kernel,
        folder: &Path,
        there: Files,
    ) -> Result<Files, LabError> {
        let path = folder.join("archive");
        let out = BufWriter::new(File::create(&path).map_err(LabError::at(&path))?);
        let mut root = Root {
            archive: Archive::more(out),
            path: &path,
            there,
        };
        let command = self.add_command(kernel, &mut root)?;
        self.add_files(&mut root)?;
        let there = root.there;
        root.archive.finish().map_err(LabError::at(&path))?;
        let script = folder.join("command");
        fs::write(&script, command).map_err(LabError::at(&script))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
            .map_err(LabError::at(&script))?;
        Ok(there)
    }

    fn add_files(&self, root: &mut Root<'_>) -> Result<(), LabError> {
        for name in &self.copy {
            let file = programs::find(name).ok_or_else(|| {
                LabError::Request(format!("cannot copy {}: no such file", name.display()))
            })?;
            root.copy(&file)?;
        }
        if self.with_tools {
            for file in programs::TOOLS
                .iter()
                .filter_map(|name| programs::find(name.as_ref()))
            {
                root.copy(&file)?;
            }
            for file in SETTINGS.map(Path::new) {
                if file.exists() {
                    root.copy(file)?;
                }
            }
        }
        Ok(())
    }

    /// Add the program and return the script that starts it in our working directory.
    fn add_command(&self, kernel: &Kernel, root: &mut Root<'_>) -> Result<Vec<u8>, LabError> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(b"#!/bin/sh\n".to_vec());
        };
        let found = programs::find(Path::new(program));
        let program = match &found {
            Some(file) => {
                root.copy(file)?;
                file.as_os_str()
            }
            None if kernel
                .applets()?
                .iter()
                .any(|applet| program == applet.as_str()) =>
            {
                program
            }
            None => {
                let program = program.display();
                return Err(LabError::Request(format!("{program}: no such program")));
            }
        };
        let here = match &self.here {
            Some(here) => here.clone(),
            None => std::env::current_dir().map_err(LabError::at(Path::new(".")))?,
        };
        root.folder(&here)?;
        let mut script = b"#!/usr/bin/busybox sh\ncd ".to_vec();
        script.extend(quoted(here.as_os_str()));
        script.extend(b" || exit\nexec ");
        script.extend(quoted(program));
        for argument in arguments {
            script.push(b' ');
            script.extend(quoted(argument));
        }
        script.push(b'\n');
        Ok(script)
    }

    fn add_modules(&self, kernel: &Kernel, root: &mut Root<'_>) -> Result<(), LabError> {
        let names: Vec<String> = self.load.iter().chain(&self.keep).cloned().collect();
        let mut all = kernel.modules()?;
        for (name, file) in &self.replace {
            all.replace(name, file);
        }
        let modules = all.with_dependencies(&names)?;
        let folder = Path::new("lib/modules").join(kernel.version());
        for module in &modules {
            root.file(folder.join(module.place()), 0o644, &module.content)?;
        }
        for (name, index) in [
            ("modules.dep", dependency_index(&modules)),
            ("modules.alias", alias_index(&modules)),
            ("modules.builtin", all.builtin_index()),
        ] {
            root.file(folder.join(name), 0o644, index.as_bytes())?;
        }
        Ok(())
    }

    /// `/lab/job`, which init reads.
    fn settings(&self) -> String {
        let mut load = AT_BOOT.map(str::to_owned).to_vec();
        if self.share || self.standing {
            load.extend(["9pnet_virtio", "9p"].map(str::to_owned));
        }
        load.extend(self.load.iter().cloned());
        let flag = |set: bool| if set { "1" } else { "" };
        format!(
            "load='{}'\nshare={}\ninteractive={}\nstanding={}\nterminal=vt100\n{}",
            load.join(" "),
            flag(self.share),
            flag(self.command.is_empty() && !self.standing),
            flag(self.standing),
            self.zns,
        )
    }
}

/// The guest's file system under construction.
struct Root<'a> {
    archive: Archive<BufWriter<File>>,
    /// The archive's path, for messages.
    path: &'a Path,
    there: Files,
}

/// The files of the host that a guest has.
pub(crate) type Files = BTreeMap<PathBuf, Copied>;

/// The attributes by which a copied file is recognised as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    length: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Root<'_> {
    fn folder(&mut self, path: impl AsRef<Path>) -> Result<(), LabError> {
        self.archive
            .folder(path.as_ref())
            .map_err(LabError::at(self.path))
    }

    fn file(&mut self, path: impl AsRef<Path>, mode: u32, content: &[u8]) -> Result<(), LabError> {
        self.archive
            .file(path.as_ref(), mode, content)
            .map_err(LabError::at(self.path))
    }

    /// Copy a file of the host to the same path in the guest, with its libraries.
    fn copy(&mut self, file: &Path) -> Result<(), LabError> {
        self.copy_alone(file)?;
        for library in programs::libraries(file)? {
            self.copy_alone(&library)?;
        }
        Ok(())
    }

    fn copy_alone(&mut self, file: &Path) -> Result<(), LabError> {
        if self.archive.contains(file) {
            return Ok(());
        }
        let metadata = fs::metadata(file).map_err(LabError::at(file))?;
        let mode = metadata.permissions().mode();
        let copied = Copied {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            inode: metadata.ino(),
        };
        if self.there.insert(file.to_owned(), copied) == Some(copied) {
            return Ok(());
        }
        let content = programs::content(file, metadata.len())?;
        self.file(file, mode & 0o7777, &content)
    }
}

/// Add busybox, under every one of its names that no program of the host has taken.
fn add_busybox(kernel: &Kernel, root: &mut Root<'_>) -> Result<(), LabError> {
    let busybox = kernel.busybox();
    let content = fs::read(&busybox).map_err(LabError::at(&busybox))?;
    root.file("bin/busybox", 0o755, &content)?;
    let folders = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin"].map(Path::new);
    for applet in kernel.applets()? {
        if !folders
            .iter()
            .any(|folder| root.archive.contains(&folder.join(&applet)))
        {
            let path = Path::new("usr/bin").join(&applet);
            root.archive
                .symlink(&path, "busybox")
                .map_err(LabError::at(root.path))?;
        }
    }
    // The path at which the kernel looks for it.
    root.archive
        .symlink(Path::new("usr/sbin/modprobe"), "../bin/busybox")
        .map_err(LabError::at(root.path))
}

/// The word, quoted so that a shell takes it literally.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = b"'".to_vec();
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_shell_as_they_are() {
        let word = OsStr::from_bytes(b"it's $HOME\n\\ \xff*");
        let mut script = b"printf %s ".to_vec();
        script.extend(quoted(word));
        let said = std::process::Command::new("sh")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .output()
            .unwrap();
        assert_eq!(said.stdout, word.as_bytes());
    }
}
