# In the guest: get the disk, make an XFS, run one test on it, check it.
#
# usage: guest.sh PROGRAM TEST (tcp PORT NQN | pci)
set -e
program=$1 test=$2 way=$3
PATH=/share/xfsprogs:$PATH
if [ "$way" = tcp ]; then
  ip link set eth0 up
  ip addr add 10.0.2.15/24 dev eth0
  ip route add default via 10.0.2.2
  # Newer kernels want one name for each identifier of a host.
  id=6e0b3a5c-91b1-4c53-9d1c-6d3d1a9f0c12
  nvme connect -t tcp -a 10.0.2.2 -s "$4" -n "$5" -i 2 --reconnect-delay=1 \
    --hostid=$id --hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id
  disk=/dev/nvme0n1
else
  # The host has made one partition.
  disk=/dev/nvme0n1p1
fi
for _ in $(seq 100); do
  if [ -b $disk ]; then break; fi
  sleep 0.1
done
mkfs.xfs -q -K -i exchange=1 $disk
mkdir -p /mnt/xfs
mount -t xfs $disk /mnt/xfs
INDEF_ON_XFS=/mnt/xfs INDEF_ON_DISK=$disk "$program" --exact "$test" --nocapture >&2
umount /mnt/xfs
xfs_repair -n $disk >&2
echo "step: done"
