# The kernel's own NVMe/TCP target and flashd, in turns, under the same load, in one guest.
#
# usage: target.sh FLASHD LOAD RUNS SECONDS. Lines for the caller: case, contender, commands a second.
set -e
flashd=$1 load=$2 runs=$3 seconds=$4
config=/sys/kernel/config
mountpoint -q $config || mount -t configfs none $config
ip link set lo up

# A disk in memory that keeps what is written.
disk=$config/nullb/disk
mkdir $disk
echo 96 >$disk/size
echo 4096 >$disk/blocksize
echo 1 >$disk/memory_backed
echo 1 >$disk/power
subsystem=$config/nvmet/subsystems/kernel
mkdir $subsystem $subsystem/namespaces/1 $config/nvmet/ports/1
echo 1 >$subsystem/attr_allow_any_host
for name in /dev/nullb_disk /dev/disk /dev/nullb*; do
  if [ -b $name ] && [ "$(cat /sys/block/${name#/dev/}/size)" = 196608 ]; then
    printf %s $name >$subsystem/namespaces/1/device_path
  fi
done
echo 1 >$subsystem/namespaces/1/enable
port=$config/nvmet/ports/1
echo tcp >$port/addr_trtype
echo ipv4 >$port/addr_adrfam
echo 127.0.0.1 >$port/addr_traddr
echo 4420 >$port/addr_trsvcid
ln -s $subsystem $port/subsystems/kernel

mkdir -p /run
$flashd serve --profile zero --namespace conventional:96MiB --listen 127.0.0.1:4421 \
  --nqn nqn.2014-08.org.nvmexpress:flashd >/run/flashd.out 2>&1 &
for _ in $(seq 100); do
  if grep -q 4421 /run/flashd.out; then break; fi
  sleep 0.1
done

one() {
  case=$1 contender=$2 address=$3 nqn=$4
  shift 4
  said=$($load --address $address --nqn $nqn --span 64MiB --seconds $seconds "$@")
  rate=${said#*: }
  echo "$case|$contender|${rate%%/s*}"
}
for _ in $(seq $runs); do
  while read -r case options; do
    one "$case" kernel 127.0.0.1:4420 kernel $options
    one "$case" flashd 127.0.0.1:4421 nqn.2014-08.org.nvmexpress:flashd $options
  done <<'CASES'
4k-reads --size 4KiB --depth 64
4k-reads-depth-1 --size 4KiB --depth 1
128k-reads --size 128KiB --depth 16
4k-writes --size 4KiB --depth 64 --write
CASES
done
