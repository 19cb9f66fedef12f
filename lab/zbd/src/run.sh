# fio's own tests of zoned devices (t/zbd of its source), on one disk of a target.
#
# usage: run.sh PORT NQN NSID NULL_BLK CASES...; /share/zbd is t/zbd. For every case there is a line "CASE
# RESULT SECONDS REASON" in /share/results, and where it has not passed the end of its log in /share/logs.
# NULL_BLK are the parameters with which the kernel's null_blk has zones like the disk's.
port=$1 nqn=$2 nsid=$3 null_blk=$4
shift 4
. /share/connect.sh
# The suite's device: its number is that of its namespace.
case $nsid in 1) disk=$zoned ;; *) disk=$flat ;; esac
queue=/sys/block/${disk#/dev/}/queue
for file in zoned max_open_zones max_active_zones chunk_sectors logical_block_size; do
  echo "$file $(cat $queue/$file)"
done >/share/disk

# Logs go beside the script, and some of them are long: not on the share.
mkdir -p /tmp/fio/t /share/logs
cp -r /share/zbd /tmp/fio/t/zbd
ln -s "$(command -v fio)" /tmp/fio/fio
suite=/tmp/fio/t/zbd/test-zbd-support

# The result of a case on null_blk: where it fails there, too, the device is not at fault.
control() {
  [ -b /dev/nullb0 ] || modprobe null_blk nr_devices=1 gb=1 bs=4096 memory_backed=1 $null_blk
  bash $suite -w -t $1 /dev/nullb0 | sed -n 's/^Running test .* \.\.\. \([A-Z]*\).*/\1/p'
}

# Zones that are open elsewhere count against the limits: the script resets them (-w). It begins with
# a look at every zone, so it gets several cases at once.
while [ $# -gt 0 ]; do
  cases=
  for case in "${@:1:8}"; do cases="$cases -t $case"; done
  shift $(($# < 8 ? $# : 8))
  began=$SECONDS
  # Lines like "Running test 07 ... PASS".
  timeout -s KILL 3000 bash $suite -w $cases $disk 2>&1 | while read -r line; do
    case $line in "Running test "*) ;; *) echo "$line"; continue ;; esac
    read -r number dots result reason <<<"${line#Running test }"
    case=$((10#$number))
    took=$((SECONDS - began))
    if [ "$result" != PASS ]; then
      { tail -c 20000 $suite.log.$case; dmesg | tail -n 20; } >/share/logs/$case
    fi
    if [ "$result" = FAIL ]; then reason="null_blk: $(control $case)"; fi
    echo "$case $result $took ${reason//$disk/the disk}" >>/share/results
    began=$SECONDS
    rm -f $suite.log.$case
  done
done
nvme disconnect-all
echo "step: done"
