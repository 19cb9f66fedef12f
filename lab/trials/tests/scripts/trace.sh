# Reads and writes whose ranges are known, on three file systems, while indef watches.
#
# usage: trace.sh INDEF; what it saw is in /share: check.json (what there is to be seen), fs, syscall
# (every single access, as lines), store (a profile), store.json (what was said about it).
set -e
indef=$1

# While nothing is mounted, the modules of the file systems, and the types that they bring, are not
# there. Later they are.
$indef --json trace --check >/share/check.json

# A file system on each disk, with these files of 4 MiB.
set -- ext4 xfs btrfs
for disk in /dev/vda /dev/vdb /dev/vdc; do
  kind=$1; shift
  case $kind in
    ext4) mkfs.ext4 -q $disk ;;
    *) mkfs.$kind -f $disk >/dev/null 2>&1 ;;
  esac
  mkdir -p /mnt/$kind
  mount -t $kind $disk /mnt/$kind
  for file in direct cold warm asked uring mapped counted; do
    dd if=/dev/urandom of=/mnt/$kind/$file bs=1M count=4 conv=fsync 2>/dev/null
  done
done

sync
echo 3 >/proc/sys/vm/drop_caches
cat /mnt/*/warm >/dev/null

watch() {
  layer=$1; shift
  if ! $indef --quiet trace "$@" --path /mnt --layer $layer -- sh -ec "$work" >/tmp/said 2>&1; then
    cat /tmp/said >&2
    exit 1
  fi
}

# fio says what its jobs are; nobody asks here.
jobs='fio --name=job --thread --rw=read --size=1m --output=/dev/null'

work="
for folder in /mnt/*; do
  dd if=\$folder/direct of=/dev/null bs=64k count=16 iflag=direct
  dd if=\$folder/cold of=/dev/null bs=64k
  dd if=\$folder/warm of=/dev/null bs=64k
  dd if=/dev/zero of=\$folder/written bs=64k count=16 conv=fsync
  $jobs --filename=\$folder/mapped --bs=4k --ioengine=mmap
done"
watch fs --raw -o /share/fs

echo 3 >/proc/sys/vm/drop_caches
work="
for folder in /mnt/*; do
  dd if=\$folder/direct of=/dev/null bs=64k count=16 iflag=direct
  dd if=\$folder/asked of=/dev/null bs=64k count=16 skip=8
  dd if=/dev/zero of=\$folder/sent bs=64k count=16
  $jobs --filename=\$folder/uring --bs=64k --direct=1 --ioengine=io_uring
  $jobs --filename=\$folder/mapped --bs=4k --ioengine=mmap
done"
watch syscall --raw -o /share/syscall

work='
for folder in /mnt/*; do
  for time in 1 2 3; do dd if=$folder/counted of=/dev/null bs=128k count=8 iflag=direct; done
done'
watch fs --json --max-overhead off -o /share/store
# The command's own output is there, too.
grep '^{' /tmp/said >/share/store.json
