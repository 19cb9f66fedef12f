# F2FS's own garbage collection beside indef: who holds up whom, and what is left of the files.
#
# usage, with release builds of indef and indef-lab:
#   cargo lab up --device flashd --patched f2fs --copy f2fs_io --copy target/release/indef
#   cargo lab run -- sh -c "$(cat experiments/f2fs-gc.sh)" gc $PWD/target/release/indef $PWD/target/release/indef-lab
#   cargo lab down
#
# Half of what fills 16 sections is deleted, so that there is garbage to collect; aged files are moved by
# indef alone, and beside a collection that never pauses; then it goes on without indef. It prints, for each:
# seconds, blocks that garbage collection has moved, and fragments of the files.
set -e
indef=$1 lab=$2
disk=$(basename "$(readlink -f $ZNS_CONVENTIONAL)")
settings=/sys/fs/f2fs/$disk
files=$ZNS_MOUNT/files filler=$ZNS_MOUNT/filler

collected() { cat $settings/moved_blocks_foreground $settings/moved_blocks_background | awk '{ sum += $1 } END { print sum + 0 }'; }
fragments() { $indef --json scan $files | grep '^{"path"' | sed 's/.*"extents":\([0-9]*\).*/\1/' | awk '{ sum += $1 } END { print sum }'; }
now() { awk '{ print $1 }' /proc/uptime; }
prepare() {
  rm -rf $files $filler
  mkdir $filler
  for n in $(seq 256); do dd if=/dev/zero of=$filler/$n bs=1M count=2 2>/dev/null; done
  sync
  for n in $(seq 1 2 256); do rm $filler/$n; done
  $lab inside age varmail $files --factor 812 --rounds 1 --reads 0
  sync
}
measure() { # WHAT COMMAND…
  what=$1
  shift
  blocks=$(collected) begun=$(now)
  "$@" >/tmp/said
  echo "$what $(now) $begun $(collected) $blocks" | awk '{ printf "%s: %.1f s, %d blocks collected", $1, $2 - $3, $4 - $5 }'
  echo ", $(fragments) fragments"
}

echo 1 >$settings/gc_urgent_sleep_time
for round in 1 2 3; do
  prepare
  echo "aged: $(fragments) fragments"
  measure alone $indef --json run $files
  prepare
  echo 1 >$settings/gc_urgent
  measure beside $indef --json run $files
  measure without sleep 2
  measure afterwards sleep 10
  echo 0 >$settings/gc_urgent
done
