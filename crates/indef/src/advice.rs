//! Explains each reason to a person in one sentence, with the remedy where there is one.

use std::borrow::Cow;

use indef_core::SkipReason;
use indef_engine::run::Reason;

/// A reason that can be explained to a person.
pub(crate) trait Advice {
    /// One sentence, without a full stop.
    fn advice(&self) -> Cow<'static, str>;
}

impl Advice for SkipReason {
    fn advice(&self) -> Cow<'static, str> {
        Cow::Borrowed(sentence(*self))
    }
}

impl Advice for Reason {
    fn advice(&self) -> Cow<'static, str> {
        match self {
            Self::Skip(reason) => reason.advice(),
            Self::Failed(error) => error.to_string().into(),
            Self::DryRun => "would be moved".into(),
        }
    }
}

const fn sentence(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Contiguous => "already contiguous; there is nothing to gain",
        SkipReason::Truncated => "among the lowest-priority ranges that --truncate leaves alone",
        SkipReason::Cold => "not among the hottest ranges of the profile",
        SkipReason::NotRead => "the profile shows no reads of it",
        SkipReason::OverBudget => {
            "the budget went to ranges with a better gain for each byte, or is too small for it"
        }
        SkipReason::BeyondPlan => {
            "it would write more than was planned, since files have changed or share more since then; run again, which plans anew"
        }
        SkipReason::GainReached => "the target gain is reached without it",
        SkipReason::PaysTooLate => {
            "its reads save too little to pay for the move in time (indef watch --payback)"
        }
        SkipReason::AllReached => {
            "reaches all of the space that it holds; there is none to give back"
        }
        SkipReason::HeldByOthers => {
            "a reflink or snapshot refers to the same extents, so that nothing would come free"
        }
        SkipReason::FreesLittle => {
            "too few bytes would come free for those that would be written (see --reclaim-ratio)"
        }
        SkipReason::NoGain => "no better place was found for it",
        SkipReason::NoPlace => {
            "no free run elsewhere takes it in one piece, and it would get more fragments"
        }
        SkipReason::NoTimeLost => "its fragments cost no time, as measured or modelled",
        SkipReason::Shared => {
            "shared with a reflink or snapshot (on Btrfs, and on XFS with rmapbt, root can move plain data of all of them together; on other XFS with --shared-among-paths); --allow-unshare would give the sharing up"
        }
        SkipReason::KeepsSharing => {
            "shared, and here sharing cannot be given up safely: a power cut could mix the files"
        }
        SkipReason::HoldersUnreachable => {
            "shared with files that could not all be found or changed (one is immutable or being deleted)"
        }
        SkipReason::HoldersUnknown => {
            "shared, on an XFS that does not tell with which files, and not all that share were given (as root, give all of them, with --shared-among-paths; mkfs.xfs -m rmapbt=1, which newer xfsprogs do by themselves, makes one that tells)"
        }
        SkipReason::ManyHolders => {
            "shared with more than 256 files at the same place, or in very many parts (deleting old snapshots helps; with --shared-among-paths, giving fewer files)"
        }
        SkipReason::MetadataCost => {
            "its snapshots would get more metadata of their own than data would move (deleting old snapshots helps)"
        }
        SkipReason::HoldersDiffer => {
            "shared in parts: a reflink or snapshot would keep the old blocks, or get more fragments"
        }
        SkipReason::Compressed => "compressed extents, which this file system cannot merge further",
        SkipReason::Unwritten => "allocated but never written; reading it costs nothing",
        SkipReason::Inline => "so small that its data lies in the metadata",
        SkipReason::Empty => "has no data blocks",
        SkipReason::NotRegular => "not a regular file",
        SkipReason::PathTooLong => {
            "somewhere below it are folders in folders with paths of more than 64 KiB; what is in these is left out"
        }
        SkipReason::LostAndFound => {
            "where fsck keeps files that have lost their names, for root alone: there are none unless it found some"
        }
        SkipReason::SymbolicLink => {
            "a directory on its path is a symbolic link, which is not followed below the path that was given"
        }
        SkipReason::NoEngine => "no engine for its file system",
        SkipReason::ReadOnlyMount => {
            "its file system is mounted read-only; mount it for writing first"
        }
        SkipReason::CheckpointsOff => {
            "its file system is mounted with checkpoint=disable, so that no move would be durable; mount -o remount,checkpoint=enable first"
        }
        SkipReason::NotPermitted => "may not be written by this user; try as root",
        SkipReason::SwapFile => "an active swap file; swapoff it first",
        SkipReason::Immutable => "has the immutable attribute (chattr -i removes it)",
        SkipReason::AppendOnly => "has the append-only attribute (chattr -a removes it)",
        SkipReason::RunningBinary => "a program that is running",
        SkipReason::Dax => "in DAX mode, where fragments cost nothing that moving could repair",
        SkipReason::Encrypted => {
            "encrypted: this file system's engine cannot move it, or its key is missing"
        }
        SkipReason::Pinned => {
            "pinned to its blocks, which somebody relies on (F2FS_IOC_SET_PIN_FILE releases it)"
        }
        SkipReason::AtomicWrite => "being written atomically by a database; run again",
        SkipReason::Verity => "protected by fs-verity, which this file system's engine refuses",
        SkipReason::NoOffload => {
            "this kernel has no F2FS offload (kernel/f2fs), or its device cannot copy; another engine can move it"
        }
        SkipReason::Unsupported => "has a feature that this file system's engine refuses",
        SkipReason::NoJournal => {
            "its file system has no journal, so a power cut during the move could lose data"
        }
        SkipReason::FastCommit => {
            "its file system has fast_commit, which before Linux 7.0 does not tell of moved blocks (tune2fs -O ^fast_commit)"
        }
        SkipReason::NoRmap => {
            "exchanging extents on an XFS without rmapbt leaves a log that the kernel cannot recover after a power cut (mkfs.xfs -m reflink=1; --engine xfs-swap-extents takes the risk)"
        }
        SkipReason::NoSpace => {
            "not enough free space in one piece (see --min-free, and indef compact)"
        }
        SkipReason::QuotaExceeded => "its owner's quota has no room for the copy",
        SkipReason::MovedAlong => {
            "moves along with another file that has the same blocks, and that file's result tells how it went; there is nothing to do"
        }
        SkipReason::Changed => "changed meanwhile; nothing was lost, run again",
        SkipReason::Collected => {
            "the file system collected garbage meanwhile, and moved blocks of it, too: it has more fragments than before; run again"
        }
        SkipReason::InUse => {
            "open for writing elsewhere; on this file system only an idle file can be moved in part"
        }
        SkipReason::Gone => "no longer there",
        SkipReason::OutOfRange => "lies beyond the end of the file",
        SkipReason::Stopped => "the run was stopped before it; --resume continues",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_a_sentence_of_its_own() {
        let sentences: HashSet<_> = SkipReason::ALL.iter().map(Advice::advice).collect();
        assert_eq!(sentences.len(), SkipReason::ALL.len());
        for sentence in sentences {
            assert!(
                !sentence.is_empty() && !sentence.ends_with('.'),
                "{sentence}"
            );
        }
    }
}
