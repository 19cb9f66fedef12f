# Connect to the target: sets $zoned and $flat.
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
# Newer kernels want one name for each identifier of a host.
id=6e0b3a5c-91b1-4c53-9d1c-6d3d1a9f0c11
host="--hostid=$id --hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id"
# One after the other until they are there: see lab/guest/files/zns.
unbound=/sys/devices/virtual/workqueue/cpumask
processors=$(cat $unbound)
echo 1 >$unbound
nvme connect -t tcp -a 10.0.2.2 -s $port -n $nqn -i 2 $host $connect_options
# Newer kernels look at namespaces at the same time, and number disks as they come.
zoned= flat=
for _ in $(seq 100); do
  for disk in /dev/nvme*n*; do
    case $(cat /sys/block/${disk#/dev/}/nsid 2>/dev/null) in
      1) zoned=$disk ;;
      2) flat=$disk ;;
    esac
  done
  # The queue comes after the disk.
  if [ -b "$zoned" ] && [ -b "$flat" ] && [ -e "/sys/block/${zoned#/dev/}/queue/zoned" ]; then break; fi
  sleep 0.1
done
echo "$processors" >$unbound
# With several paths it is the path that has a scheduler.
for scheduler in /sys/block/nvme*/queue/scheduler; do
  if grep -q mq-deadline $scheduler; then echo mq-deadline >$scheduler; fi
done
