# Connect to the target at $port with the name $nqn, and to no other any more; /dev/ssd1 and /dev/ssd2 are
# its namespaces then.
for left in /sys/class/nvme/nvme*/delete_controller; do
  if [ -e "$left" ]; then echo 1 >"$left"; fi
done
rm -f /dev/ssd1 /dev/ssd2
# One after the other until they are there: see lab/guest/files/zns.
unbound=/sys/devices/virtual/workqueue/cpumask
processors=$(cat $unbound)
echo 1 >$unbound
host=6e0b3a5c-91b1-4c53-9d1c-6d3d1a9f0c11
# What nvme-cli's `connect` writes there.
echo "transport=tcp,traddr=10.0.2.2,trsvcid=$port,nqn=$nqn,nr_io_queues=2,hostid=$host,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$host" \
  >/dev/nvme-fabrics
for id in 1 2; do
  for _ in $(seq 200); do
    for disk in /sys/block/nvme*n*; do
      if [ "$(cat "$disk/nsid" 2>/dev/null)" = $id ] && [ -b "/dev/${disk##*/}" ]; then
        ln -sf "${disk##*/}" /dev/ssd$id
      fi
    done
    if [ -b /dev/ssd$id ]; then break; fi
    usleep 50000
  done
  [ -b /dev/ssd$id ]
done
echo "$processors" >$unbound
