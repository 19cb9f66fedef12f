# An F2FS that was filled with files, of which each fourth is left: no section is free but for those that F2FS keeps for
# itself, and none is full. Then indef makes free space whole.
#
# usage: compact.sh INDEF; what it said is in /share: before.json and after.json (scan), done.json (compact)
set -e
indef=$1
mkfs.f2fs -f -q /dev/vda >/dev/null
mkdir -p /mnt/f2fs
mount -t f2fs -o noatime /dev/vda /mnt/f2fs
mkdir /mnt/f2fs/files /mnt/f2fs/empty
dd if=/dev/urandom of=/tmp/piece bs=512k count=1 2>/dev/null
number=0
while cp /tmp/piece /mnt/f2fs/files/$number 2>/dev/null; do
  echo $number >>/mnt/f2fs/files/$number || break
  number=$((number + 1))
done
rm -f /mnt/f2fs/files/$number
sync
while [ $number -gt 0 ]; do
  number=$((number - 1))
  [ $((number % 4)) = 0 ] || rm -f /mnt/f2fs/files/$number
done
sync
# Nobody else makes room meanwhile.
echo 3600 >/sys/fs/f2fs/vda/gc_idle_interval
sums() {
  (cd /mnt/f2fs/files && md5sum * | sort)
}
sums >/tmp/before
# What indef sees in the two steps is one state: the second one begins with a checkpoint, too.
sync
$indef scan --json /mnt/f2fs/empty >/share/before.json
$indef compact --json --want 192MiB /mnt/f2fs >/share/done.json
$indef scan --json /mnt/f2fs/empty >/share/after.json
echo 3 >/proc/sys/vm/drop_caches
sums | cmp - /tmp/before
umount /mnt/f2fs
fsck.f2fs --dry-run /dev/vda >/tmp/fsck
! grep -q '\[Fail\]' /tmp/fsck
