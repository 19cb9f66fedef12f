# Files whose blocks lie where they lie, on F2FS on a zoned SSD; a script of what is done with them
# follows. Contents are in /share: a and b (written in turn, 1 and 15 blocks), c (at once).
set -e
indef=$1

round=0
while [ $round -lt 48 ]; do
  dd if=/share/a of=$ZNS_MOUNT/a bs=4k skip=$round seek=$round count=1 conv=notrunc,fsync
  dd if=/share/b of=$ZNS_MOUNT/b bs=60k skip=$round seek=$round count=1 conv=notrunc,fsync
  round=$((round + 1))
done 2>/dev/null
dd if=/share/c of=$ZNS_MOUNT/c bs=1M conv=fsync 2>/dev/null
