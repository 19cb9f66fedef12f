# What indef says about what age.sh has made.
#
# usage: zns.sh INDEF; /share has contents d and e, too (written while indef watches). What indef said goes
# there: scan.json, scan.txt, plan.json, fs (every access, as lines).
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
