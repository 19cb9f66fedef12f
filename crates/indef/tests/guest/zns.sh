# Files whose blocks lie where they lie, and what indef says about them, on F2FS on a zoned SSD.
#
# usage: zns.sh INDEF; contents are in /share: a and b (written in turn, 1 and 15 blocks), c (at once),
# d and e (written while indef watches). What indef said goes there, too: scan.json, scan.txt, plan.json,
# fs (every access, as lines).
set -e
indef=$1

round=0
while [ $round -lt 48 ]; do
  dd if=/share/a of=$ZNS_MOUNT/a bs=4k skip=$round seek=$round count=1 conv=notrunc,fsync
  dd if=/share/b of=$ZNS_MOUNT/b bs=60k skip=$round seek=$round count=1 conv=notrunc,fsync
  round=$((round + 1))
done 2>/dev/null
dd if=/share/c of=$ZNS_MOUNT/c bs=1M conv=fsync 2>/dev/null
sync

$indef --json scan --io-size 128KiB $ZNS_MOUNT >/share/scan.json
$indef scan --io-size 128KiB $ZNS_MOUNT >/share/scan.txt
$indef --json plan --policy sequential --io-size 128KiB $ZNS_MOUNT >/share/plan.json

echo 3 >/proc/sys/vm/drop_caches
work="
dd if=$ZNS_MOUNT/c of=/dev/null bs=64k count=8 skip=4 iflag=direct
dd if=$ZNS_MOUNT/a of=/dev/null bs=4k
dd if=/share/d of=$ZNS_MOUNT/d bs=64k
dd if=/share/e of=$ZNS_MOUNT/e bs=64k
sync"
if ! $indef --quiet trace --raw -o /share/fs --path $ZNS_MOUNT --layer fs -- sh -ec "$work" >/tmp/said 2>&1; then
  cat /tmp/said >&2
  exit 1
fi
umount $ZNS_MOUNT
