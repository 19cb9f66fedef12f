# An F2FS that is mounted with checkpoint=disable amid compact: what moves from then on would be back at its old place at the
# next mount.
#
# usage: checkpoints_off_amid.sh INDEF; what it said is in /share: done.json, and its messages in said
set -e
indef=$1
# 192 MiB of the disk.
mkfs.f2fs -f -q /dev/vda 393216 >/dev/null
mkdir -p /mnt/f2fs
mounted() {
  mount -t f2fs -o noatime /dev/vda /mnt/f2fs
  # Nobody else makes room meanwhile.
  echo 3600 >/sys/fs/f2fs/vda/gc_idle_interval
}
mounted
fill_in_part 4 1
sums() {
  (cd /mnt/f2fs && find . -type f | sort | xargs md5sum)
}
sums >/tmp/before
$indef compact --json --want 48MiB --rate 2MiB /mnt/f2fs >/share/done.json 2>/share/said &
pid=$!
moved() {
  cat /sys/fs/f2fs/vda/moved_blocks_foreground
}
first=$(moved)
while [ $(($(moved) - first)) -lt 512 ]; do
  kill -0 $pid
  sleep 0.1
done
# How much of it may not be used meanwhile is no matter.
mount -o remount,checkpoint=disable:100% /mnt/f2fs
! wait $pid || exit 3
umount /mnt/f2fs
mounted
echo 3 >/proc/sys/vm/drop_caches
sums | cmp - /tmp/before

umount /mnt/f2fs
fsck.f2fs --dry-run /dev/vda >/tmp/fsck
! grep -q '\[Fail\]' /tmp/fsck
