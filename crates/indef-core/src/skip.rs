//! Why something was left where it is. A skip is a result, not an error.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $advice:literal;)*) => {
        /// Why a chunk or a file is not moved. Serialised and displayed as its kebab-case word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum SkipReason {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl SkipReason {
            /// Every reason there is, for documentation and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word that stands in JSON and in messages.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// One sentence for a person: what it means and, where something can be done, what.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }
        }
    };
}

reasons! {
    /// The range is physically contiguous already.
    Contiguous = "contiguous", "already contiguous; there is nothing to gain";
    /// Cut off by `--truncate`: among the lowest IODP of its file.
    Truncated = "truncated", "among the lowest-priority ranges that --truncate leaves alone";
    /// Outside the hottest share that the policy `fragpicker` keeps.
    Cold = "cold", "not among the hottest ranges of the profile";
    /// The profile has no reads of it.
    NotRead = "not-read", "the profile shows no reads of it";
    /// `--budget` was spent on better ranges.
    OverBudget = "over-budget", "the budget went to ranges with a better gain for each byte";
    /// `--target-gain` was reached without it.
    GainReached = "gain-reached", "the target gain is reached without it";
    /// The relocation would not leave fewer fragments.
    NoGain = "no-gain", "no better place was found for it";
    /// Its own times show that its fragments cost nothing.
    NoTimeLost = "no-time-lost", "its reads were timed, and lose no time by its fragments";
    /// Extents are shared with a reflink or a snapshot.
    Shared = "shared", "shared with a reflink or snapshot; --allow-unshare would give the sharing up";
    /// Nor may their sharing be given up: a power cut could mix the files that share.
    KeepsSharing = "keeps-sharing", "shared, and here sharing cannot be given up safely: a power cut could mix the files";
    /// Compressed extents that cannot be merged further.
    Compressed = "compressed", "compressed extents, which this file system cannot merge further";
    /// Allocated but never written: reads of it reach no device.
    Unwritten = "unwritten", "allocated but never written; reading it costs nothing";
    /// Data inside the inode or metadata.
    Inline = "inline", "so small that its data lies in the metadata";
    /// No blocks at all.
    Empty = "empty", "has no data blocks";
    /// Not a regular file.
    NotRegular = "not-regular", "not a regular file";
    /// A directory on its path is a symbolic link.
    SymbolicLink = "symbolic-link", "a directory on its path is a symbolic link, which is not followed below the path that was given";
    /// The file system has no engine.
    NoEngine = "no-engine", "no engine for its file system";
    /// Mounted read-only.
    ReadOnlyMount = "read-only-mount", "its file system is mounted read-only";
    /// The user may not write it, or the engine needs a privilege.
    NotPermitted = "not-permitted", "may not be written by this user; try as root";
    /// An active swap file.
    SwapFile = "swap-file", "an active swap file; swapoff it first";
    /// Immutable attribute.
    Immutable = "immutable", "has the immutable attribute (chattr -i removes it)";
    /// Append-only attribute.
    AppendOnly = "append-only", "has the append-only attribute (chattr -a removes it)";
    /// A program that runs, or a mapped library that the kernel protects.
    RunningBinary = "running-binary", "a program that is running";
    /// Direct access to persistent memory.
    Dax = "dax", "in DAX mode, where fragments cost nothing that moving could repair";
    /// Encrypted, where the engine cannot move ciphertext.
    Encrypted = "encrypted", "encrypted, which this file system's engine cannot move";
    /// F2FS: pinned to its blocks.
    Pinned = "pinned", "pinned to its blocks, which somebody relies on (F2FS_IOC_SET_PIN_FILE releases it)";
    /// F2FS: an atomic write is under way.
    AtomicWrite = "atomic-write", "being written atomically by a database; run again";
    /// fs-verity.
    Verity = "verity", "protected by fs-verity, which this file system's engine refuses";
    /// Neither kernel nor device can offload.
    NoOffload = "no-offload", "this kernel has no F2FS offload (kernel/f2fs), or its device cannot copy; another engine can move it";
    /// A feature that the engine refuses.
    Unsupported = "unsupported", "has a feature that this file system's engine refuses";
    /// ext4 without a journal cannot order data before metadata.
    NoJournal = "no-journal", "its file system has no journal, so a power cut during the move could lose data";
    /// ext4 with `fast_commit` on a kernel whose fast commits do not tell of moved blocks.
    FastCommit = "fast-commit", "its file system has fast_commit, which before Linux 7.0 does not tell of moved blocks (tune2fs -O ^fast_commit)";
    /// XFS without `rmapbt`, whose log cannot be recovered after an exchange.
    NoRmap = "no-rmapbt", "exchanging extents on an XFS without rmapbt leaves a log that the kernel cannot recover after a power cut (mkfs.xfs -m rmapbt=1; --engine xfs-swap-extents takes the risk)";
    /// Not enough free space, with `--min-free` kept.
    NoSpace = "no-space", "not enough free space in one piece (see --min-free)";
    /// The owner's quota does not allow the donor.
    QuotaExceeded = "quota-exceeded", "its owner's quota has no room for the copy";
    /// Changed between planning and moving, or while moving.
    Changed = "changed", "changed meanwhile; nothing was lost, run again";
    /// Held open for writing, where only an idle file can be moved safely.
    InUse = "in-use", "open for writing elsewhere; on this file system only an idle file can be moved in part";
    /// Vanished between planning and moving.
    Gone = "gone", "no longer there";
    /// A range that the file does not have (any more).
    OutOfRange = "out-of-range", "lies beyond the end of the file";
    /// A limit (`--time-limit`, Ctrl-C) stopped the run before it.
    Stopped = "stopped", "the run was stopped before it; --resume continues";
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
