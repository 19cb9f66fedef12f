//! Comparison of findings with the model.

use super::{BLOCK, BlockValue, FileModel, Model};

/// Known losses, which are counted apart. On stock ext4 a mover swaps blocks, and `fdatasync` of a
/// writer that has the file open at the same time does not commit the swap (`ext4_swap_extents` does
/// not advance `i_datasync_tid`, fs/ext4/extents.c, v6.18). The window covers only
///
/// - an older version of the same block, made obsolete by `fdatasync` or `O_DSYNC` and nothing more,
/// - while nothing has committed the journal since,
/// - acknowledged less than this before the cut, or while a mover was stopped, or after one was
///   killed, which may have been between a step and its commit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    /// The longest time from a mover's step to the end of its commit; 0 grants nothing.
    pub(crate) step_ms: u64,
    /// With `data=writeback` a cut may leave old data of any file in blocks whose content is in doubt
    /// (ext4(5)); such blocks are counted, too.
    pub(crate) stale: bool,
    /// On Btrfs a file that was replaced by a rename may be back under its name, if the file that
    /// replaced it was renamed away again and fsynced before a commit. Its content may then be that of
    /// the last commit, without later fsyncs.
    pub(crate) replaced: bool,
    /// XFS writes a block in place as soon as no other file shares it, even if that is not durable yet:
    /// after a cut, a file that shared it before has the new data.
    pub(crate) in_place: bool,
    /// Btrfs truncates a file in several transactions, each of which leaves a size in between.
    pub(crate) in_steps: bool,
}

/// The findings of a check.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// Blocks, sizes, names and attributes that were compared with the model.
    pub(crate) checked: u64,
    /// Of these, those that had several allowed values (only after a cut).
    pub(crate) in_doubt: u64,
    /// Losses within the [`Window`].
    pub(crate) window: u64,
    /// Old data in blocks in doubt.
    pub(crate) stale: u64,
    /// Violations, each with file, place, and description.
    pub(crate) violations: Vec<String>,
}

impl Findings {
    /// Add a violation.
    pub(crate) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    /// Add the findings of another check.
    pub(crate) fn merge(&mut self, other: Self) {
        self.checked += other.checked;
        self.in_doubt += other.in_doubt;
        self.window += other.window;
        self.stale += other.stale;
        self.violations.extend(other.violations);
    }
}

impl Model {
    /// Whether the window covers the loss of data that was acknowledged at `acknowledged_ms`.
    fn in_window(&self, acknowledged_ms: u64, window: Window) -> bool {
        let committed_since = |ms: u64| {
            let mut commits = self.commits_ms.iter();
            commits.any(|(begun, ended)| *begun > ms && *ended < self.now_ms)
        };
        if window.step_ms == 0 || committed_since(acknowledged_ms) {
            return false;
        }
        let young = self.now_ms.saturating_sub(acknowledged_ms) <= window.step_ms;
        let halted = |(from, to): &(u64, u64)| {
            acknowledged_ms + window.step_ms >= *from
                && self.now_ms <= to.saturating_add(window.step_ms)
                && !committed_since(*from)
        };
        young || self.halts_ms.iter().any(halted)
    }

    /// Judge a block of a file, or the part of it that is there, after a cut.
    pub(crate) fn judge_block(
        &self,
        file: u32,
        block: u32,
        bytes: &[u8],
        window: Window,
        findings: &mut Findings,
    ) {
        let history = &self.file(file).blocks[block as usize];
        findings.checked += 1;
        findings.in_doubt += u64::from(history.in_doubt());
        let found = BlockValue::of(bytes);
        let instead = || history.instead().filter(|_| window.in_place);
        let may_be = || history.allowed().chain(instead());
        if let Some(found) = found
            && may_be().any(|value| *value == found)
        {
            return;
        }
        if found.is_none() && torn(bytes, may_be().copied()) {
            return;
        }
        let obsolete = history.obsolete().iter();
        if let Some(found) = found
            && { obsolete }
                .any(|old| old.value == found && self.in_window(old.acknowledged_ms, window))
        {
            findings.window += 1;
            return;
        }
        if window.stale && found.is_some() && history.in_doubt() {
            findings.stale += 1;
            return;
        }
        let floor = *history.floor();
        let allowed: Vec<String> = may_be().map(ToString::to_string).collect();
        findings.violation(format!(
            "file {file} block {block}: {}; allowed: {}",
            explain(file, found, floor, may_be()),
            allowed.join(", ")
        ));
    }

    /// Judge a block while the power is on.
    pub(crate) fn judge_live(&self, file: u32, block: u32, bytes: &[u8], findings: &mut Findings) {
        let live = self.file(file).live(block);
        findings.checked += 1;
        if BlockValue::of(bytes) != Some(live) {
            let found = BlockValue::of(bytes);
            findings.violation(format!(
                "file {file} block {block}, read: {}; it is {live}",
                explain(file, found, live, [live].iter())
            ));
        }
    }

    /// Judge a size after a cut.
    pub(crate) fn judge_size(
        &self,
        file: u32,
        bytes: u64,
        window: Window,
        findings: &mut Findings,
    ) {
        let size = &self.file(file).size;
        findings.checked += 1;
        let fits = |(low, high): &(u64, u64)| (*low..=*high).contains(&bytes);
        if size.allowed().any(fits) {
            return;
        }
        let mut obsolete = size.obsolete().iter();
        if obsolete.any(|old| fits(&old.value) && self.in_window(old.acknowledged_ms, window)) {
            findings.window += 1;
            return;
        }
        let allowed: Vec<_> = size.allowed().collect();
        let least = allowed.iter().map(|(low, _)| *low).min();
        let most = allowed.iter().map(|(_, high)| *high).max();
        if window.in_steps && least < Some(bytes) && Some(bytes) < most {
            return;
        }
        findings.violation(format!(
            "file {file}: size {bytes}; allowed (bytes from, to): {allowed:?}"
        ));
    }

    /// Judge the attribute of the hammer after a cut.
    pub(crate) fn judge_attribute(&self, file: u32, value: u32, findings: &mut Findings) {
        let attribute = &self.file(file).attribute;
        findings.checked += 1;
        if !attribute.allowed().any(|allowed| *allowed == value) {
            let allowed: Vec<_> = attribute.allowed().collect();
            findings.violation(format!(
                "file {file}: attribute {value}; allowed: {allowed:?}"
            ));
        }
    }

    /// Judge which file a name leads to after a cut, by its inode. Returns several files if an inode
    /// number was reused; none is a violation unless the name may be free.
    pub(crate) fn judge_name(
        &self,
        name: &str,
        inode: Option<u64>,
        findings: &mut Findings,
    ) -> Vec<u32> {
        findings.checked += 1;
        let allowed: Vec<Option<u32>> = match self.names.get(name) {
            Some(history) => history.allowed().copied().collect(),
            None => vec![None],
        };
        let Some(inode) = inode else {
            if !allowed.contains(&None) {
                findings.violation(format!("name {name}: it is gone"));
            }
            return Vec::new();
        };
        let mut files: Vec<u32> = allowed.iter().flatten().copied().collect();
        files.retain(|file| self.file(*file).inode == inode);
        files.sort_unstable();
        files.dedup();
        if files.is_empty() {
            findings.violation(format!(
                "name {name}: leads to inode {inode}; allowed files: {allowed:?}"
            ));
        }
        files
    }
}

impl FileModel {
    /// How much of block `block` lies below `bytes`, if any.
    pub(crate) fn part_below(block: u32, bytes: u64) -> usize {
        let start = u64::from(block) * BLOCK as u64;
        bytes.saturating_sub(start).min(BLOCK as u64) as usize
    }
}

/// Judge a torn block: a block may be written while its page is being changed, and a file system's
/// blocks may be smaller than ours. Then each byte is that of one of the allowed values; if only one is
/// allowed, a block is never torn.
fn torn(bytes: &[u8], allowed: impl Iterator<Item = BlockValue>) -> bool {
    let allowed: Vec<_> = allowed.map(BlockValue::bytes).collect();
    let one_of = |(at, byte): (usize, &u8)| allowed.iter().any(|value| value[at] == *byte);
    allowed.len() > 1 && bytes.iter().enumerate().all(one_of)
}

fn explain<'a>(
    file: u32,
    found: Option<BlockValue>,
    floor: BlockValue,
    mut allowed: impl Iterator<Item = &'a BlockValue>,
) -> String {
    let what = match (found, floor) {
        (None, _) => return "no block of the hammer (torn or foreign data)".into(),
        (Some(BlockValue::Zero), _) => return "zeroes, which nobody wrote".into(),
        (Some(BlockValue::Data(_)), BlockValue::Zero)
            if allowed.all(|value| *value == BlockValue::Zero) =>
        {
            "data, where zeroes are durable"
        }
        (Some(BlockValue::Data(stamp)), _) if stamp.file != file => "another file's block",
        (Some(BlockValue::Data(stamp)), BlockValue::Data(floor)) if stamp.block != floor.block => {
            "another place's block"
        }
        (Some(BlockValue::Data(stamp)), BlockValue::Data(floor))
            if stamp.version < floor.version =>
        {
            "an older version"
        }
        _ => "not what was written",
    };
    format!("{what}: {}", found.unwrap_or(BlockValue::Zero))
}
