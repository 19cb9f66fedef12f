# An F2FS that was filled with files, of which some are left in every section: none is free but for those that F2FS keeps for
# itself, and none is full. Then indef makes free space whole, and a file is written that is as long as it tells.
#
# usage: compact.sh INDEF WANT OF KEEP [OPTION...]; of every OF files of 512 KiB the last KEEP stay, the options are of mkfs.f2fs
# what it said is in /share: before.json and after.json (scan), done.json (compact), large.json (scan of that file)
set -e
indef=$1 want=$2 of=$3 keep=$4
shift 4
mkfs.f2fs -f -q "$@" /dev/vda >/dev/null
mkdir -p /mnt/f2fs
mount -t f2fs -o noatime /dev/vda /mnt/f2fs
mkdir /mnt/f2fs/empty
fill_in_part $of $keep
# Nobody else makes room meanwhile.
echo 3600 >/sys/fs/f2fs/vda/gc_idle_interval
sums() {
  (cd /mnt/f2fs/files && md5sum * | sort)
}
numbers() {
  (cd /sys/fs/f2fs/vda && grep . free_segments dirty_segments ovp_segments reserved_segments min_ssr_sections)
  df -B1 /mnt/f2fs
}
sums >/tmp/before
# What indef sees in the two steps is one state: the second one begins with a checkpoint, too.
sync
numbers
$indef scan --json /mnt/f2fs/empty >/share/before.json
$indef compact --json --want $want /mnt/f2fs >/share/done.json
numbers
$indef scan --json /mnt/f2fs/empty >/share/after.json
length=$(sed -n 's/.*"largest_after_bytes": *\([0-9]*\).*/\1/p' /share/done.json)
# A node takes a block for each thousand.
dd if=/dev/zero of=/mnt/f2fs/large bs=256k count=$((length / 262144 * 99 / 100)) conv=fsync 2>/dev/null
numbers
$indef scan --json /mnt/f2fs/large >/share/large.json
echo 3 >/proc/sys/vm/drop_caches
sums | cmp - /tmp/before
umount /mnt/f2fs
fsck.f2fs --dry-run /dev/vda >/tmp/fsck
! grep -q '\[Fail\]' /tmp/fsck
