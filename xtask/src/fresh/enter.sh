# Enter the root $1 as user $2 with the toolchain $3 and cargo's folder $4, and run the rest. Runs in
# mounts of its own, in which nothing of this is seen from outside.
set -eu
root=$1 user=$2 toolchain=$3 cargo_home=$4
shift 4
# The root becomes a mount: else programs in it find no mount with the name `/`.
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
# Loop devices come and go in the kernel's own /dev.
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -o bind,ro "$toolchain" "$root/opt/rust"
for part in cache index; do
  mount -o bind,ro "$cargo_home/registry/$part" "$root/root/.cargo/registry/$part"
done
exec chroot --userspec="$user:$user" --groups= "$root" /bin/sh -c 'cd /srv/indef && exec "$@"' sh "$@"
