//! Reasons to leave a file or a range in its place. A skip is a result, not an error. The sentences
//! that explain a reason to a person are in the program.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// The reason for which a chunk or a file is not moved. Serialised and displayed as its
        /// kebab-case name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum SkipReason {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl SkipReason {
            /// All reasons, for documentation and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in JSON and in messages.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

reasons! {
    /// The range is physically contiguous already.
    Contiguous = "contiguous";
    /// Cut off by `--truncate`: among the lowest IODP of its file.
    Truncated = "truncated";
    /// Outside the hottest share that the policy `fragpicker` keeps.
    Cold = "cold";
    /// The profile has no reads of it.
    NotRead = "not-read";
    /// `--budget` was spent on better ranges.
    OverBudget = "over-budget";
    /// It takes more bytes by now than the plan has for it, and nobody gave a budget.
    BeyondPlan = "beyond-plan";
    /// `--target-gain` was reached without it.
    GainReached = "gain-reached";
    /// Its reads save too little to pay for the move within the time that was set (`indef watch`).
    PaysTooLate = "pays-too-late";
    /// Nothing of its extents is unreachable: there is no space to give back.
    AllReached = "all-reached";
    /// Others refer to the same extents, which would stay allocated for them.
    HeldByOthers = "held-by-others";
    /// Too few bytes would come free for those that would be written (`--reclaim-ratio`).
    FreesLittle = "frees-little";
    /// The relocation would not leave fewer fragments.
    NoGain = "no-gain";
    /// No free run elsewhere takes it in one piece, where a region is emptied.
    NoPlace = "no-place";
    /// Its own times show that its fragments cost nothing.
    NoTimeLost = "no-time-lost";
    /// Extents are shared with a reflink or a snapshot.
    Shared = "shared";
    /// Sharing may not be given up either: a power cut could mix the files that share.
    KeepsSharing = "keeps-sharing";
    /// Shared with a file that cannot be found, opened or changed: it would keep the old blocks.
    HoldersUnreachable = "holders-unreachable";
    /// Shared, on a file system that does not tell with which files (XFS without `rmapbt`), and not all of them were
    /// named, or none.
    HoldersUnknown = "holders-unknown";
    /// Shared with more files than are looked at, or in more parts.
    ManyHolders = "many-holders";
    /// Its snapshots would get more metadata of their own than data moves.
    MetadataCost = "metadata-cost";
    /// Files that share it have only parts of it in common: one would keep the old blocks, or get more fragments.
    HoldersDiffer = "holders-differ";
    /// Compressed extents that cannot be merged further.
    Compressed = "compressed";
    /// Allocated but never written: reads of it reach no device.
    Unwritten = "unwritten";
    /// Data inside the inode or metadata.
    Inline = "inline";
    /// No blocks at all.
    Empty = "empty";
    /// Not a regular file.
    NotRegular = "not-regular";
    /// `lost+found` of a file system, which only root may read.
    LostAndFound = "lost-and-found";
    /// A directory in which paths would be longer than a walk goes down to.
    PathTooLong = "path-too-long";
    /// A directory on its path is a symbolic link.
    SymbolicLink = "symbolic-link";
    /// The file system has no engine.
    NoEngine = "no-engine";
    /// Mounted read-only.
    ReadOnlyMount = "read-only-mount";
    /// F2FS, mounted so that it writes no checkpoints: no move would become durable.
    CheckpointsOff = "checkpoints-off";
    /// The user may not write it, or the engine needs a privilege.
    NotPermitted = "not-permitted";
    /// An active swap file.
    SwapFile = "swap-file";
    /// Immutable attribute.
    Immutable = "immutable";
    /// Append-only attribute.
    AppendOnly = "append-only";
    /// A program that runs, or a mapped library that the kernel protects.
    RunningBinary = "running-binary";
    /// Direct access to persistent memory.
    Dax = "dax";
    /// Encrypted, where the engine cannot move ciphertext, or the key is not there.
    Encrypted = "encrypted";
    /// F2FS: pinned to its blocks.
    Pinned = "pinned";
    /// F2FS: an atomic write is under way.
    AtomicWrite = "atomic-write";
    /// fs-verity.
    Verity = "verity";
    /// Neither kernel nor device can offload.
    NoOffload = "no-offload";
    /// A feature that the engine refuses.
    Unsupported = "unsupported";
    /// ext4 without a journal cannot order data before metadata.
    NoJournal = "no-journal";
    /// ext4 with `fast_commit` on a kernel whose fast commits do not record moved blocks.
    FastCommit = "fast-commit";
    /// XFS without `rmapbt`, whose log cannot be recovered after an exchange.
    NoRmap = "no-rmapbt";
    /// Not enough free space, with `--min-free` kept.
    NoSpace = "no-space";
    /// The owner's quota does not allow the donor.
    QuotaExceeded = "quota-exceeded";
    /// Moved together with another file that has the same blocks, which does it for all of them.
    MovedAlong = "moved-along";
    /// Changed between planning and moving, or while moving.
    Changed = "changed";
    /// Has more fragments than before, as the file system collected garbage meanwhile and moved blocks by itself.
    Collected = "garbage-collected";
    /// Held open for writing, where only an idle file can be moved safely.
    InUse = "in-use";
    /// Vanished between planning and moving.
    Gone = "gone";
    /// A range that the file does not have (any more).
    OutOfRange = "out-of-range";
    /// A limit (`--time-limit`, Ctrl-C) stopped the run before it.
    Stopped = "stopped";
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
