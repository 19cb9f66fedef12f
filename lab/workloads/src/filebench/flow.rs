//! One flow: its operations, one after the other, for ever.

use crate::Numbers;

use super::{
    APPEND_BYTES, Ageing, IO_BYTES, Personality,
    fileset::{FileId, Fileset},
};

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make it, empty.
    Create(FileId),
    /// Write past its end.
    Append {
        /// The file.
        id: FileId,
        /// How often it was created.
        generation: u32,
        /// Its length so far.
        at: u64,
        /// Bytes to write.
        bytes: u64,
    },
    /// fsync.
    Sync(FileId),
    /// Read the whole of it.
    Read(FileId),
    /// Delete it.
    Delete(FileId),
    /// Nothing: all files that could be deleted are in other flows' hands.
    Wait,
}

/// The place in an iteration: the next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Room,
    Create,
    WriteWhole,
    /// varmail's first append, to the file that it has created.
    AppendNew,
    SyncNew,
    AppendAny,
    ReadAny,
    /// varmail's second append, to the file that it has read.
    AppendRead,
    SyncRead,
    ReadLast,
}

/// More than the steps of an iteration.
const STEPS_MAX: usize = 16;

/// A flow.
#[derive(Clone, Debug)]
pub struct Flow {
    personality: Personality,
    reads_percent: u32,
    numbers: Numbers,
    stage: Stage,
    held: Option<FileId>,
}

impl Flow {
    /// The flow with this number.
    #[must_use]
    pub fn new(ageing: Ageing, number: u64) -> Self {
        Self {
            personality: ageing.personality,
            reads_percent: ageing.reads_percent,
            numbers: Numbers::stream(ageing.seed, number),
            stage: Stage::Room,
            held: None,
        }
    }

    /// The next operation, which the fileset takes for done; `None` when the files are aged and the flow
    /// is at the end of an iteration.
    pub fn next(&mut self, files: &mut Fileset) -> Option<Op> {
        // An iteration in which every file is in other flows' hands has no operation.
        for _ in 0..STEPS_MAX {
            if self.stage == Stage::Room && files.is_aged() {
                self.let_go(files);
                return None;
            }
            let op = match self.personality {
                Personality::Fileserver => self.step_of_fileserver(files),
                Personality::Varmail => self.step_of_varmail(files),
            };
            if op.is_some() {
                return op;
            }
        }
        Some(Op::Wait)
    }

    /// deletefile, createfile, writewholefile, appendfilerand, readwholefile.
    fn step_of_fileserver(&mut self, files: &mut Fileset) -> Option<Op> {
        match self.stage {
            Stage::Room => {
                self.let_go(files);
                let next = files.take(&mut self.numbers, false);
                if let Some(id) = next.filter(|id| !files.is_full(files.wanted(*id))) {
                    self.held = Some(id);
                    self.stage = Stage::Create;
                    return None;
                }
                let Some(id) = next else {
                    // Few small files, which appends have made as long as all may be.
                    if files.is_full(APPEND_BYTES) {
                        return self.delete_any(files).or(Some(Op::Wait));
                    }
                    // All files are there: this iteration creates none.
                    self.stage = Stage::AppendAny;
                    return None;
                };
                files.release(id);
                self.delete_any(files).or(Some(Op::Wait))
            }
            Stage::WriteWhole => {
                let id = self.held?;
                let left = files.wanted(id) - files.bytes(id);
                if left == 0 {
                    self.stage = Stage::AppendAny;
                    return None;
                }
                Some(append(files, id, left.min(IO_BYTES)))
            }
            Stage::Create => {
                let wanted = self.held.map_or(0, |id| files.wanted(id));
                self.create(files, wanted, Stage::WriteWhole)
            }
            Stage::AppendAny => self.append_any(files, Stage::ReadAny),
            _ => self.read_any(files, Stage::Room),
        }
    }

    /// deletefile, createfile, appendfilerand, fsync, readwholefile, appendfilerand, fsync, readwholefile.
    fn step_of_varmail(&mut self, files: &mut Fileset) -> Option<Op> {
        match self.stage {
            Stage::Room => {
                self.let_go(files);
                if files.is_full(APPEND_BYTES) {
                    return self.delete_any(files).or(Some(Op::Wait));
                }
                self.held = files.take(&mut self.numbers, false);
                // All files are there: only the second append is left.
                self.stage = match self.held {
                    Some(_) => Stage::Create,
                    None => Stage::ReadAny,
                };
                None
            }
            Stage::Create => self.create(files, 0, Stage::AppendNew),
            Stage::AppendNew => self.append_held(files, Stage::SyncNew),
            Stage::SyncNew => self.sync(Stage::ReadAny),
            Stage::ReadAny => self.read_any(files, Stage::AppendRead),
            Stage::AppendRead => self.append_held(files, Stage::SyncRead),
            Stage::SyncRead => self.sync(Stage::ReadLast),
            _ => self.read_any(files, Stage::Room),
        }
    }

    fn let_go(&mut self, files: &mut Fileset) {
        if let Some(id) = self.held.take() {
            files.release(id);
        }
    }

    fn create(&mut self, files: &mut Fileset, promised: u64, then: Stage) -> Option<Op> {
        self.stage = then;
        let id = self.held?;
        files.create(id, promised);
        Some(Op::Create(id))
    }

    fn append_any(&mut self, files: &mut Fileset, then: Stage) -> Option<Op> {
        self.let_go(files);
        self.held = files.take(&mut self.numbers, true);
        self.append_held(files, then)
    }

    fn append_held(&mut self, files: &mut Fileset, then: Stage) -> Option<Op> {
        self.stage = then;
        let id = self.held?;
        let bytes = 1 + self.numbers.below(APPEND_BYTES);
        Some(append(files, id, bytes))
    }

    fn sync(&mut self, then: Stage) -> Option<Op> {
        self.stage = then;
        self.held.map(Op::Sync)
    }

    fn read_any(&mut self, files: &mut Fileset, then: Stage) -> Option<Op> {
        self.stage = then;
        self.let_go(files);
        self.held = files.take(&mut self.numbers, true);
        let is_done = self.numbers.percent(self.reads_percent);
        self.held.filter(|_| is_done).map(Op::Read)
    }

    /// The deleted file is free at once: nobody else can have it open.
    fn delete_any(&mut self, files: &mut Fileset) -> Option<Op> {
        let id = files.take(&mut self.numbers, true)?;
        files.delete(id);
        self.held = Some(id);
        Some(Op::Delete(id))
    }
}

/// The operations that make the files that are there at the beginning, one after the other: filebench
/// makes fileserver's so. varmail begins without files, see [`super`].
#[must_use]
pub fn preallocate(ageing: Ageing, files: &mut Fileset) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut numbers = Numbers::stream(ageing.seed, u64::MAX - 1);
    if ageing.personality == Personality::Varmail {
        return ops;
    }
    while let Some(id) = files.take(&mut numbers, false) {
        files.release(id);
        if files.is_full(files.wanted(id)) {
            break;
        }
        files.create(id, files.wanted(id));
        ops.push(Op::Create(id));
        while files.bytes(id) < files.wanted(id) {
            let left = files.wanted(id) - files.bytes(id);
            ops.push(append(files, id, left.min(IO_BYTES)));
        }
    }
    files.begin_flows();
    ops
}

fn append(files: &mut Fileset, id: FileId, bytes: u64) -> Op {
    let at = files.bytes(id);
    files.append(id, bytes);
    Op::Append {
        id,
        generation: files.generation(id),
        at,
        bytes,
    }
}
