#!/usr/bin/busybox sh
# The first process of a guest of `cross.sh`: indef moves files on file systems of its own there, and traces. The last
# line that it prints tells whether all of it worked; the guest ends afterwards.
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8
/usr/bin/busybox mount -t proc proc /proc
/usr/bin/busybox mount -t devtmpfs devtmpfs /dev
# Programs that no package brought.
/usr/bin/busybox --install -s /opt
PATH=$PATH:/opt
mount -t sysfs sysfs /sys
mount -t tracefs tracefs /sys/kernel/tracing
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/tmp
mount -t tmpfs tmpfs /run
mkdir -p /mnt /root /var/lib
ln -s /proc/self/mounts /etc/mtab
say() { echo "=== $*"; }
fail() {
  say "FAILED: $*"
  poweroff -f
}
for module in loop ext4 xfs btrfs; do modprobe "$module" || fail "no module $module"; done
page=$(($(sed -n 's/^KernelPageSize: *\([0-9]*\) kB/\1/p' /proc/self/smaps | head -n 1) << 10))
say "Linux $(uname -r) on $(uname -m), pages of $page bytes, $(indef --version)"

indef doctor || fail doctor
for fs in ext4 xfs btrfs; do
  indef demo --fs $fs --size 24MiB || fail "demo on $fs"
  say "demo on $fs: contents equal, fsck clean"
done

# Where reads are seen to be: offsets in the page cache are counted in the kernel's pages.
truncate -s 256M /tmp/image
mkfs.ext4 -q -b 4096 /tmp/image
mount -o loop /tmp/image /mnt || fail "cannot mount an image"
dd if=/dev/urandom of=/mnt/file bs=1M count=16 2>/dev/null
sync
start=8388608
# Whether all ranges of the trace of a read of 64 KiB there are there, and there is one.
traced() {
  echo 3 >/proc/sys/vm/drop_caches
  rm -f /tmp/profile
  indef trace --max-overhead off --layer "$1" --only reads --path /mnt/file --output /tmp/profile -- \
    dd if=/mnt/file of=/dev/null bs=65536 skip=$((start / 65536)) count=1 || fail "trace at layer $1"
  indef profile export /tmp/profile >/tmp/lines || fail "profile export"
  cat /tmp/lines
  awk -v start=$start '
    $1 == "range" { if ($3 == start && $4 >= 65536) right++; else wrong++ }
    END { exit !(right == 1 && !wrong) }' /tmp/lines || fail "the read is not where layer $1 saw it"
  say "trace at layer $1: the read is where it was"
}
traced fs
traced syscall
umount /mnt
say "all of it works"
sync
poweroff -f
