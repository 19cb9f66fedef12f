//! Changes of files, carried out.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write,
    path::PathBuf,
};

use anyhow::{Context, Result};
use workloads::{
    Numbers,
    change::{Change, FileNumber},
};

/// Files that stay open: those of a mail store, each delivery of which would open two.
const OPEN_MAX: usize = 256;

/// Carries changes out below a folder.
pub(super) struct Performer {
    folder: PathBuf,
    open: HashMap<FileNumber, File>,
    content: Vec<u8>,
}

impl Performer {
    pub(super) fn new(folder: PathBuf, seed: u64) -> Self {
        // No file system finds anything to compress.
        let mut content = vec![0; 16 << 20];
        Numbers::new(seed).fill(&mut content);
        Self {
            folder,
            open: HashMap::new(),
            content,
        }
    }

    fn path(&self, file: FileNumber) -> PathBuf {
        self.folder.join(format!("{file:06}"))
    }

    pub(super) fn perform(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Append {
                file,
                bytes,
                durable,
            } => self.append(file, bytes as usize, durable),
            Change::Delete(file) => {
                self.open.remove(&file);
                let path = self.path(file);
                fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))
            }
        }
    }

    fn append(&mut self, file: FileNumber, bytes: usize, durable: bool) -> Result<()> {
        let path = self.path(file);
        let context = || format!("cannot append to {}", path.display());
        if !self.open.contains_key(&file) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            let opened = File::options().create(true).append(true).open(&path);
            self.open.insert(file, opened.with_context(context)?);
        }
        let mut open = &self.open[&file];
        // Contents of neighbours differ.
        let from = (file as usize * 4099) % (self.content.len() / 4);
        let content = &self.content[from..];
        for at in (0..bytes).step_by(content.len()) {
            let piece = &content[..content.len().min(bytes - at)];
            open.write_all(piece).with_context(context)?;
        }
        if durable {
            open.sync_data().with_context(context)?;
        }
        Ok(())
    }
}
