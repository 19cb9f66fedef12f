# File systems on a target: made, filled, mounted again, compared, checked.
#
# usage: filesystems.sh PORT NQN. Namespace 1 has zones, namespace 2 has none.
set -e
port=$1 nqn=$2
step() { echo "step: $*"; }
connect_options=--hdr-digest
. /share/connect.sh
mkdir -p /mnt/fs

# Some folders and files, whose sums are compared after they were read from the device again.
fill() {
  mkdir -p /mnt/fs/a/b
  for n in 1 2 3 4; do
    dd if=/dev/urandom of=/mnt/fs/a/file$n bs=64k count=4 2>/dev/null
    dd if=/dev/urandom of=/mnt/fs/a/b/small$n bs=1000 count=$n 2>/dev/null
  done
  rm /mnt/fs/a/file3
  (cd /mnt/fs && find . -type f | sort | xargs md5sum) >/tmp/sums
  sync
}
again() {
  umount /mnt/fs
  "$@"
  (cd /mnt/fs && md5sum -c /tmp/sums) >/dev/null
  umount /mnt/fs
}

step ext4
mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1,nodiscard $flat 32M
mount -t ext4 $flat /mnt/fs
fill
again mount -t ext4 $flat /mnt/fs
e2fsck -fn $flat

step zonefs
# The first file is the second zone.
sectors=$(cat /sys/block/${zoned#/dev/}/queue/chunk_sectors)
dd if=/share/zonefs of=$zoned bs=4k count=1 oflag=direct 2>/dev/null
dd if=/dev/urandom of=/tmp/data bs=64k count=4 2>/dev/null
dd if=/tmp/data of=$zoned bs=64k seek=$((4 * sectors / 128)) oflag=direct conv=notrunc 2>/dev/null
mount -t zonefs $zoned /mnt/fs
cmp /mnt/fs/seq/3 /tmp/data
# Debian's 6.1 takes Zone Append to the right place for one to the wrong place, on any device
# (null_blk, too): it looks at the place only after having moved on. zonefs then gives up, and Btrfs
# has an oops.
case $(uname -r) in
  6.1.*) appends= ;;
  *) appends=1 ;;
esac
if [ -n "$appends" ]; then
  dd if=/tmp/data of=/mnt/fs/seq/3 bs=64k oflag=direct,append conv=notrunc 2>/dev/null
  umount /mnt/fs
  mount -t zonefs $zoned /mnt/fs
  cat /tmp/data /tmp/data | cmp - /mnt/fs/seq/3
fi
truncate -s 0 /mnt/fs/seq/3
[ "$(stat -c %s /mnt/fs/seq/3)" = 0 ]
umount /mnt/fs
blkzone reset $zoned

if [ -n "$appends" ]; then
  step btrfs
  mkfs.btrfs -q -f -O zoned -d single -m single $zoned
  mount -t btrfs $zoned /mnt/fs
  fill
  again mount -t btrfs $zoned /mnt/fs
  btrfs check --readonly $zoned >/share/btrfs-check 2>&1
  blkzone reset $zoned
fi

if [ -n "$f2fs" ]; then
  step f2fs
  mkfs.f2fs -f -m -c $zoned $flat >/share/mkfs.f2fs
  mount -t f2fs $flat /mnt/fs
  fill
  again mount -t f2fs $flat /mnt/fs
  fsck.f2fs $flat >/share/fsck.f2fs
fi
nvme disconnect-all
step done
