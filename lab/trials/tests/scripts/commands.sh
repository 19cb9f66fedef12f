# Commands of nvme-cli, blkzone and fio on a target, by the guest's own initiator.
#
# usage: commands.sh PORT NQN. What was read from the target is in /share, one file for each page.
# Namespace 1 has zones, namespace 2 has none; both have blocks of 4096 bytes.
set -e
port=$1 nqn=$2
step() { echo "step: $*"; }
. /share/connect.sh

step discovery
nvme discover -t tcp -a 10.0.2.2 -s $port $host >/share/discovery
step identify and log pages
nvme id-ctrl /dev/nvme0 >/share/id-ctrl
nvme id-ns $zoned >/share/id-ns-1
nvme id-ns $flat >/share/id-ns-2
nvme zns id-ctrl /dev/nvme0 >/share/zns-id-ctrl
nvme zns id-ns $zoned >/share/zns-id-ns
nvme ns-descs $zoned >/share/ns-descs
nvme nvm-id-ctrl /dev/nvme0 >/share/nvm-id-ctrl
nvme list-ns /dev/nvme0 >/share/list-ns
nvme list-ns /dev/nvme0 -y 2 >/share/list-ns-zoned
for page in smart-log error-log fw-log changed-ns-list-log effects-log supported-log-pages; do
  nvme $page /dev/nvme0 >/share/$page
done
nvme zns changed-zone-list $zoned >/share/changed-zone-list
nvme get-log /dev/nvme0 --log-id=0xdb --log-len=512 --raw-binary >/share/geometry
for feature in 0x06 0x07 0x0b 0x0e 0x0f 0x16 0xc0; do
  nvme get-feature /dev/nvme0 -f $feature >/share/feature-$feature
done
nvme set-feature /dev/nvme0 -f 0xc0 --value=1 >/dev/null
nvme get-feature /dev/nvme0 -f 0xc0 >/share/hints

step zones
blkzone report $zoned >/share/zones-empty
dd if=/dev/urandom of=/tmp/data bs=64k count=4 2>/dev/null
dd if=/tmp/data of=$zoned bs=64k oflag=direct 2>/dev/null
dd if=$zoned bs=64k count=4 iflag=direct 2>/dev/null | cmp - /tmp/data
blkzone report -c 1 $zoned >/share/zones-written
blkzone open -c 1 -o 65536 $zoned
blkzone close -c 1 $zoned
blkzone finish -c 1 $zoned
blkzone report -c 1 $zoned >/share/zones-finished
blkzone reset $zoned
blkzone report -c 1 $zoned >/share/zones-reset

step copy and defragment
dd if=/tmp/data of=$flat bs=64k oflag=direct 2>/dev/null
# A little-endian number of so many bytes.
number() {
  number=$1
  for _ in $(seq $2); do
    printf "\\$(printf %03o $((number & 255)))"
    number=$((number >> 8))
  done
}
# Copy, format 0h: blocks 2 to 4, then 17 to 20, to block 1000.
{ number 0 8; number 2 8; number 2 2; number 0 14
  number 0 8; number 17 8; number 3 2; number 0 14; } >/tmp/sources
nvme io-passthru $flat --opcode=0x19 --namespace-id=2 --cdw10=1000 --cdw12=1 \
  --data-len=64 --input-file=/tmp/sources --write >/dev/null
dd if=$flat bs=4k skip=1000 count=7 iflag=direct 2>/dev/null >/tmp/copied
{ dd if=/tmp/data bs=4k skip=2 count=3; dd if=/tmp/data bs=4k skip=17 count=4; } 2>/dev/null |
  cmp - /tmp/copied
# In_Device_Defragment: 64 blocks in reverse order, to 2000 and on.
: >/tmp/moves; : >/tmp/expected
for n in $(seq 0 63); do
  { number $((63 - n)) 4; number $((2000 + n)) 4; } >>/tmp/moves
  dd if=/tmp/data bs=4k skip=$((63 - n)) count=1 2>/dev/null >>/tmp/expected
done
nvme io-passthru $flat --opcode=0xc1 --namespace-id=2 --cdw10=63 \
  --data-len=512 --input-file=/tmp/moves --write >/share/defragment 2>&1
dd if=$flat bs=4k skip=2000 count=64 iflag=direct 2>/dev/null | cmp - /tmp/expected
# The same from zone to zone: the destination is a write pointer.
dd if=/tmp/data of=$zoned bs=64k oflag=direct 2>/dev/null
start=$(( $(cat /sys/block/${zoned#/dev/}/queue/chunk_sectors) / 8 ))
: >/tmp/moves
for n in $(seq 0 63); do
  { number $((63 - n)) 4; number $((start + n)) 4; } >>/tmp/moves
done
nvme io-passthru $zoned --opcode=0xc1 --namespace-id=1 --cdw10=63 \
  --data-len=512 --input-file=/tmp/moves --write >/dev/null 2>&1
dd if=$zoned bs=4k skip=$start count=64 iflag=direct 2>/dev/null | cmp - /tmp/expected
blkzone reset $zoned

step zone append
nvme zns zone-append $zoned -s $start -z 65536 -d /tmp/data >/share/appended
nvme zns zone-append $zoned -s $start -z 65536 -d /tmp/data >>/share/appended
for n in 0 1; do
  dd if=$zoned bs=4k skip=$((start + 16 * n)) count=16 iflag=direct 2>/dev/null >/tmp/appended
  head -c 65536 /tmp/data | cmp - /tmp/appended
done
blkzone reset $zoned

step fio on zones
# At least a whole zone.
fio --name=zones --filename=$zoned --direct=1 --ioengine=psync --thread --zonemode=zbd \
  --rw=write --bs=256k --size=32m --verify=crc32c --output=/share/fio-zones
step fio on blocks
fio --name=blocks --filename=$flat --direct=1 --ioengine=psync --thread \
  --rw=randwrite --bs=4k --size=2m --verify=crc32c --output=/share/fio-blocks
nvme disconnect-all
step done
