# Fills an F2FS with files of 512 KiB, and then deletes all but the last KEEP of every OF.
#
# usage: fill_in_part OF KEEP
fill_in_part() {
  mkdir /mnt/f2fs/files
  dd if=/dev/urandom of=/tmp/piece bs=512k count=1 2>/dev/null
  number=0
  while cp /tmp/piece /mnt/f2fs/files/$number 2>/dev/null; do
    echo $number >>/mnt/f2fs/files/$number || break
    number=$((number + 1))
  done
  rm -f /mnt/f2fs/files/$number
  sync
  while [ $number -gt 0 ]; do
    number=$((number - 1))
    [ $((number % $1)) -ge $(($1 - $2)) ] || rm -f /mnt/f2fs/files/$number
  done
  sync
}

