# Boot the root $1: systemd is the first process of it, in namespaces of its own, and ends once the unit of $1 that waits
# for nothing else has run. It has the machine's network (for apt) and its loop devices; settings of the kernel are for
# reading only. $2 is a folder of the machine's control groups (version 2), that becomes its root of them. Runs outside.
set -eu
root=$1 group=$2
mkdir "$group"
status=0
(
  echo 0 >"$group/cgroup.procs" # This process.
  exec unshare --cgroup --mount --pid --uts --ipc --fork --kill-child --propagation=private sh -c '
    set -eu
    mount --bind "$1" "$1"
    cd "$1"
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount --bind /sys sys
    mount -o remount,bind,ro sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    # The kernel'"'"'s own folder would get the permissions that this system wants. Loop devices that come later are there
    # already.
    mount -t tmpfs -o mode=755 tmpfs dev
    for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
      mknod -m 666 "dev/${node%%:*}" c $(echo "${node#*:}" | tr : " ")
    done
    mknod -m 660 dev/loop-control c 10 237
    n=0
    while [ $n -lt 128 ]; do
      mknod -m 660 "dev/loop$n" b 7 $n
      n=$((n + 1))
    done
    mkdir dev/shm dev/pts
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    pivot_root . mnt
    exec chroot . /bin/sh -c "umount -l /mnt; exec env -i container=fresh PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      /lib/systemd/systemd --log-level=notice --unit=fresh.target"
  ' sh "$root"
) || status=$?
find "$group" -depth -type d -exec rmdir {} + || true
exit $status
