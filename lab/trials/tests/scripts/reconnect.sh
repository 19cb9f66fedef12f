# The target goes away and comes back while there is I/O.
#
# usage: reconnect.sh PORT NQN. Says in /share/writing when it has begun; ends once all that fio has
# written is there again.
set -e
port=$1 nqn=$2
step() { echo "step: $*"; }
connect_options="--reconnect-delay=1 --ctrl-loss-tmo=120"
. /share/connect.sh
before=$(dmesg | grep -c "Successfully reconnected" || true)

# The host's driver sends in the writer's context and without MSG_NOSIGNAL (drivers/nvme/host/tcp.c of
# 6.1 and 6.12): a connection that has just gone can end the writer with SIGPIPE.
trap '' PIPE

step writing
: >/share/writing
fio --name=through --filename=$flat --direct=1 --ioengine=libaio --iodepth=8 --thread \
  --rw=randwrite --bs=4k --size=4m --fsync=64 --time_based --runtime=20 \
  --verify=crc32c --verify_backlog=256 --output=/share/fio
dmesg | grep nvme >/share/dmesg
after=$(dmesg | grep -c "Successfully reconnected" || true)
[ "$after" -gt "$before" ]
nvme disconnect-all
step done
