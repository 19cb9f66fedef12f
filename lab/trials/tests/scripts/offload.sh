# Moves what age.sh has made, by the engine that is asked for.
#
# usage: offload.sh INDEF ENGINE. What indef said goes to /share: before.json, run.json, said, after.json,
# again.json.
engine=$2

# Many small files, so that calls have several.
for n in $(seq 16); do
  for at in 0 1 2; do
    dd if=/share/b of=$ZNS_MOUNT/small$n bs=4k skip=$at seek=$at count=1 conv=notrunc,fsync
    dd if=/share/b of=$ZNS_MOUNT/between bs=4k seek=$((n * 3 + at)) count=1 conv=notrunc,fsync
  done
done 2>/dev/null
sync
echo 3 >/proc/sys/vm/drop_caches

$indef --json scan --io-size 128KiB $ZNS_MOUNT >/share/before.json
$indef --json run --engine $engine $ZNS_MOUNT >/share/run.json 2>/share/said || { cat /share/said >&2; exit 1; }
$indef --json scan --io-size 128KiB $ZNS_MOUNT >/share/after.json
$indef --json run --engine $engine $ZNS_MOUNT >/share/again.json

same() {
  for file in a b c; do cmp /share/$file $ZNS_MOUNT/$file; done
  for n in $(seq 16); do cmp -n 12288 /share/b $ZNS_MOUNT/small$n; done
}
same
echo 3 >/proc/sys/vm/drop_caches
same
umount $ZNS_MOUNT
fsck.f2fs $ZNS_CONVENTIONAL >/share/fsck 2>&1 || { cat /share/fsck >&2; exit 1; }
dmesg | grep -iE 'warn|bug|error' >/share/dmesg || true
