# Private namespaces, and writes that last longer than the host's keep alive time.
#
# usage: private.sh PORT NQN. What was read is in /share, one file each.
set -e
port=$1 nqn=$2
step() { echo "step: $*"; }
connect_options="--keep-alive-tmo=2"
. /share/connect.sh

step limits
for limit in zoned max_open_zones max_active_zones; do
  cat /sys/block/${zoned#/dev/}/queue/$limit >/share/$limit
done

step slow writes
fio --name=slow --filename=$flat --direct=1 --ioengine=libaio --iodepth=4 --thread \
  --rw=write --bs=1m --size=16m --verify=crc32c --output-format=json --output=/share/fio
dmesg | grep nvme >/share/dmesg
nvme disconnect-all
step done
