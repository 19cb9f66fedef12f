# An F2FS that writes no checkpoints: what is moved would be back at its old place at the next mount, so nothing is.
#
# usage: checkpoints_off.sh INDEF; what it said is in /share: run.json, and compact, its message
set -e
indef=$1
mkfs.f2fs -f -q /dev/vda >/dev/null
mkdir -p /mnt/f2fs
mount -t f2fs -o noatime /dev/vda /mnt/f2fs
number=0
while [ $number -lt 64 ]; do
  for file in file other; do
    dd if=/dev/urandom of=/mnt/f2fs/$file bs=64k seek=$number count=1 conv=notrunc,fsync 2>/dev/null
  done
  number=$((number + 1))
done
sync
$indef scan --json /mnt/f2fs/file >/share/before.json
mount -o remount,checkpoint=disable /mnt/f2fs
grep f2fs /proc/mounts
moved() {
  (cd /sys/fs/f2fs/vda && cat moved_blocks_foreground)
}
before=$(moved)
$indef run --json /mnt/f2fs/file >/share/run.json || true
! $indef compact --want 64MiB /mnt/f2fs 2>/share/compact || exit 3
[ "$(moved)" = "$before" ] || exit 4
$indef scan --json /mnt/f2fs/file >/share/after.json
mount -o remount,checkpoint=enable /mnt/f2fs
$indef run --json /mnt/f2fs/file >/share/on.json
