# Tries the services of the package in this folder under the systemd that is running: `indef watch` with a load beside
# it, its watchdog, its reload, its metrics, its entries in the journal, the nightly run, and that a purge leaves nothing.
# Runs for a quarter of an hour as root in a system that is thrown away afterwards (`cargo xtask fresh --service`), after
# `prepare` has run there.
set -eu
export DEBIAN_FRONTEND=noninteractive
if [ "${1:-}" = prepare ]; then
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends systemd e2fsprogs fdisk util-linux curl
  exit
fi

say() { echo "=== $*"; }
fail() {
  echo "FAILED: $*" >&2
  systemctl status --full --no-pager indef-watch.service >&2 || true
  journalctl --no-pager --unit indef-watch.service --unit indef.service --unit 'indef-trace*' | tail -n 60 >&2
  exit 1
}
# Wait up to $1 seconds for a command to succeed.
within() (
  set +x
  left=$1
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$left" -gt 0 ] || return 1
    left=$((left - 1))
    sleep 1
  done
)
logged() { journalctl --unit indef-watch.service --output cat | grep -q -e "$1"; }
is_tracing() { [ -n "$(systemctl list-units --plain --no-legend 'indef-trace@*')" ]; }
has_levels() { journalctl --unit indef-watch.service --output json | grep -q '"PRIORITY":"[34]"'; }
property() { systemctl show --property "$1" --value "${2:-indef-watch.service}"; }
has_status() { [ -n "$(property StatusText)" ]; }
was_restarted() { [ "$(property NRestarts)" -ge 1 ]; }
scrape() { curl --silent --fail --max-time 5 --unix-socket /run/indef/metrics http://localhost/metrics; }
# Whether a metric (with its labels) is at least so much.
at_least() { scrape | awk -v name="$1" -v least="$2" '$1 == name { found = ($2 + 0 >= least) } END { exit !found }'; }
extents() { filefrag "$1" | sed -E 's/.*: ([0-9]+) extents? found/\1/'; }
# All that has its names, also where nothing is kept across a boot, apart from what is told of it elsewhere.
traces() {
  find / /run /tmp -xdev \( -name '*indef*' \) -not -path '/srv/indef*' -not -path '/proc/*' -not -path '/sys/*' \
    -not -path '/dev/*' -not -path '/run/systemd/units/*' | sort -u
}
traces >/tmp/before

say "a file in hundreds of pieces, on a file system of its own"
truncate --size 512M /srv/image
mkfs.ext4 -q -b 4096 -m 0 -E lazy_itable_init=0,lazy_journal_init=0 /srv/image
mkdir /mnt/data
mount -o loop /srv/image /mnt/data
# All of it but one MiB is taken, then there is room in holes of 32 KiB.
make_pieces() (
  set +x
  free=$(df --output=avail --block-size=1M /mnt/data | tail -n 1)
  fallocate --length "$((free - 1))MiB" /mnt/data/filler
  for mib in $(seq 0 63); do
    for hole in $(seq 0 15); do
      fallocate --punch-hole --offset $((mib * 1048576 + hole * 65536)) --length 32768 /mnt/data/filler
    done
  done
  dd if=/dev/urandom of="$1" bs=1M count=24 conv=fsync status=none
  rm /mnt/data/filler
  sync
)
make_pieces /mnt/data/pieces
before=$(extents /mnt/data/pieces)
[ "$before" -ge 200 ] || fail "it has only $before extents"
sum=$(sha256sum </mnt/data/pieces)

say "install"
apt-get install -y -qq --no-install-recommends ./indef_*.deb
[ "$(systemctl is-enabled indef-watch.service || true)" = disabled ] || fail "it is switched on by itself"
systemctl cat indef-watch.service | grep -q 'ExecStart=/usr/bin/indef ' || fail "the unit names another program"
if [ "$(property LoadState indef-watch.service)" != loaded ]; then fail "systemd does not know the unit"; fi

cat >/etc/indef/indef.toml.d-new <<'CONFIG'
paths = ["/mnt/data"]
[limits]
budget = "10GiB"
[watch]
learn = "0s"
without-profile = true
payback = "3650days"
requests-price = 1
every = "20s"
calm = "1s"
portion-time = "60s"
[metrics]
metrics-listen = "unix:/run/indef/metrics"
metrics-file = "/var/lib/textfile/indef.prom"
CONFIG
mkdir -p /etc/indef/indef.toml.d /var/lib/textfile
mv /etc/indef/indef.toml.d-new /etc/indef/indef.toml.d/50-try.toml
indef config check
# Shorter times than the unit's own, so that its watchdog bites within minutes. And no readings for now: the machine that
# this runs on may be busy, and is not to decide. The journal is the system's.
mkdir -p /etc/systemd/system/indef-watch.service.d /srv/unread
ln -s /run /srv/unread/run
cat >/etc/systemd/system/indef-watch.service.d/try.conf <<'UNIT'
[Service]
WatchdogSec=20s
TimeoutAbortSec=5s
RestartSec=1s
Environment=INDEF_WATCH_ROOT=/srv/unread
UNIT
systemctl daemon-reload

say "a load: somebody reads it all the time"
(
  set +x
  while dd if=/mnt/data/pieces of=/dev/null bs=128k iflag=direct status=none; do :; done
) &
reader=$!
trap 'kill $reader 2>/dev/null || true' EXIT

say "start"
begun=$(date +%s)
systemctl enable --now indef-watch.service || fail "it does not start"
[ "$(property ActiveState)" = active ] || fail "it is not active"
[ "$(property NotifyAccess)" = main ] || fail "NotifyAccess"
within 30 has_status || fail "systemd was told no status"
within 30 scrape || fail "no metrics on its socket"
scrape | tail -n 1 | grep -qx '# EOF' || fail "metrics without an end"
within 120 at_least indef_moved_files_total 1 || fail "nothing was moved"
within 120 at_least 'indef_last_success_timestamp_seconds{file_system="/mnt/data"}' "$begun" || fail "no round ended well"
within 60 grep -q '^indef_moved_files_total 1' /var/lib/textfile/indef.prom || fail "no metrics in the file"
[ "$(stat --format %a /var/lib/textfile/indef.prom)" = 644 ] || fail "the file of metrics is not for all to read"
after=$(extents /mnt/data/pieces)
[ "$after" -lt $((before / 8)) ] || fail "$before extents, then $after"
[ "$(sha256sum </mnt/data/pieces)" = "$sum" ] || fail "its content has changed"
say "$before extents, then $after, in $(($(date +%s) - begun)) s"

found() { journalctl --unit indef-watch.service --output cat INDEF_PATH=/mnt/data "INDEF_EVENT=$1" | grep -q .; }
found decided && found moved || fail "its entries in the journal have no fields"

say "its watchdog hears from it"
sleep 45
[ "$(property NRestarts)" = 0 ] || fail "it was restarted"
[ "$(property ActiveState)" = active ] || fail "it is not active any more"

say "reload: it traces from now on"
sed -i 's/^learn = .*/learn = "15s"\nlearn-every = "25s"/' /etc/indef/indef.toml.d/50-try.toml
systemctl reload indef-watch.service || fail "it does not reload"
within 30 is_tracing || fail "nobody traces for it"
within 90 at_least indef_traced_seconds_total 10 || fail "nothing is traced"
within 20 logged '^traced ' || fail "no line of a trace in the journal"
pid=$(property MainPID)
echo 'learn = 7' >>/etc/indef/indef.toml.d/50-try.toml
systemctl reload indef-watch.service || fail "it does not reload"
within 30 logged '50-try.toml' || fail "a mistake in the configuration is not told"
[ "$(property MainPID)" = "$pid" ] || fail "a mistake in the configuration ended it"
sed -i '$d' /etc/indef/indef.toml.d/50-try.toml
indef config check
within 20 has_levels || fail "no level in the journal"
# One that is killed is no reason to end, nor to trace no more.
within 60 is_tracing || fail "nobody traces for it again"
systemctl kill --signal KILL 'indef-trace@*'
within 20 logged 'whoever traced for it ended' || fail "it does not tell that its trace was lost"
[ "$(property MainPID)" = "$pid" ] || fail "a lost trace ended it"
within 60 is_tracing || fail "nobody traces for it after one was killed"
# Nothing that the unit forbids was asked for.
! logged 'ermission denied\|not permitted' || fail "the unit forbids what it needs"
! journalctl --unit 'indef-trace@*' --output cat | grep -q 'ermission denied\|not permitted' ||
  fail "the unit that traces forbids what it needs"

say "a process that hangs is found and begun anew"
kill -STOP "$pid"
within 90 was_restarted || fail "it hung for good"
within 30 systemctl is-active --quiet indef-watch.service || fail "it did not come back"
[ "$(property MainPID)" != "$pid" ] || fail "it is the same process"
within 60 scrape || fail "no metrics after the restart"
scrape | grep -q '^indef_budget_left_bytes{period="day"}' || fail "no budget"
# Its ledger outlived it.
if at_least 'indef_budget_left_bytes{period="day"}' 10737418240; then fail "the budget was forgotten"; fi

say "ten minutes since its start"
(
  set +x
  while [ $(($(date +%s) - begun)) -lt 600 ]; do
    scrape >/dev/null || fail "no metrics after $(($(date +%s) - begun)) s"
    sleep 5
  done
)
[ "$(property NRestarts)" = 1 ] || fail "it was restarted $(property NRestarts) times"
[ "$(sha256sum </mnt/data/pieces)" = "$sum" ] || fail "its content has changed"

say "stop"
systemctl stop indef-watch.service
[ "$(property Result)" = success ] || fail "it ended with $(property Result)"
[ "$(property ExecMainStatus)" = 0 ] || fail "it ended with status $(property ExecMainStatus)"
[ ! -e /run/indef/metrics ] || fail "its socket is left"
[ ! -e /run/indef/trace ] || fail "the socket for traces is left"
! is_tracing || fail "a trace goes on"
indef history
indef history --json | grep -q '"verb":"watch"' || fail "the history does not tell of it"
indef scan --json --only-fragmented /mnt/data >/tmp/scan.json
indef history --json >/tmp/history.json
indef report --merge /tmp/history.json /tmp/scan.json

if [ -r /proc/pressure/io ]; then
  say "it reads how busy the machine is, as its unit lets it"
  sed -i /INDEF_WATCH_ROOT/d /etc/systemd/system/indef-watch.service.d/try.conf
  systemctl daemon-reload
  systemctl start indef-watch.service
  within 90 at_least 'indef_reading_known{quantity="io-pressure",drive=""}' 1 || fail "it cannot read the pressure"
  systemctl stop indef-watch.service
fi

say "the nightly run"
make_pieces /mnt/data/tonight
before=$(extents /mnt/data/tonight)
[ "$before" -ge 200 ] || fail "it has only $before extents"
tonight=$(sha256sum </mnt/data/tonight)
indef plan /mnt/data -o /tmp/night.plan
indef report --html /tmp/night.html /tmp/night.plan
grep -q /mnt/data/tonight /tmp/night.html || fail "the report does not name the file"
systemctl start indef.service || fail "it fails: $(property Result indef.service)"
[ "$(property Result indef.service)" = success ] || fail "it ended with $(property Result indef.service)"
systemctl enable --now indef.timer
systemctl list-timers --no-pager indef.timer | grep -q indef.service || fail "no timer"
after=$(extents /mnt/data/tonight)
[ "$after" -lt $((before / 8)) ] || fail "$before extents, then $after"
[ "$(sha256sum </mnt/data/tonight)" = "$tonight" ] || fail "its content has changed"
[ "$(sha256sum </mnt/data/pieces)" = "$sum" ] || fail "the other's content has changed"
! journalctl --unit indef.service --output cat | grep -q 'ermission denied\|not permitted' ||
  fail "the nightly unit forbids what it needs"
say "$before extents, then $after"
for unit in indef.service indef-watch.service indef-trace@.service; do
  say "$(systemd-analyze security --offline=true --no-pager "/usr/lib/systemd/system/$unit" | tail -n 1)"
done

say "purge, while both are on"
systemctl start indef-watch.service
kill $reader
trap - EXIT
rm -r /etc/systemd/system/indef-watch.service.d /etc/indef/indef.toml.d /var/lib/textfile
systemctl daemon-reload
apt-get purge -y -qq indef
! systemctl is-active --quiet indef-watch.service || fail "it runs on"
! systemctl is-active --quiet indef.timer || fail "the timer runs on"
within 30 umount /mnt/data || fail "something holds the file system"
e2fsck -fn /srv/image || fail "the file system is damaged"
rm -r /srv/unread
rmdir /mnt/data
rm /srv/image /tmp/scan.json /tmp/history.json /tmp/night.plan /tmp/night.html
traces >/tmp/after
diff /tmp/before /tmp/after || fail "it left something"
say "all of it works under systemd $(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')"
