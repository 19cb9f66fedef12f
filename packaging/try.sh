# Tries the packages in this folder, in a clean Debian root: installed, used, removed without a trace. Those for rpm
# last, with rpm's own program; no root of a distribution that uses it is needed for that, as they depend on nothing.
set -eu
export DEBIAN_FRONTEND=noninteractive
# All that has their names, apart from what apt and dpkg write down of everything.
traces() {
  find / -xdev \( -name '*indef*' -o -name '*flashd*' \) \
    -not -path '/srv/indef*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/dev/*' | sort
}
traces >/tmp/before

apt-get update -qq
apt-get install -y -qq --no-install-recommends ./indef_*.deb ./flashd_*.deb
are_installed() {
  # Nothing of the system is linked.
  for program in indef flashd; do
    if ldd "/usr/bin/$program" 2>/dev/null | grep -v 'statically linked'; then
      echo "$program is linked with something" >&2
      exit 1
    fi
    "$program" --version
  done
  indef scan /usr
  test -f /usr/share/man/man1/indef.1
  test -f /usr/share/doc/indef/copyright
  grep -q 'ExecStart=/usr/bin/indef ' /usr/lib/systemd/system/indef.service
}
# flashd's SSD as a file, with a file system on it.
use_flashd() {
  mkdir /srv/ssd
  flashd mount /srv/ssd --profile zero --size 64MiB &
  tries=0
  until [ -e /srv/ssd/disk ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ]
    sleep 0.1
  done
  mkfs.ext4 -q /srv/ssd/disk
  e2fsck -fn /srv/ssd/disk
  kill $!
  wait $!
  rmdir /srv/ssd
}
are_installed
indef config check
test "$(indef config example)" = "$(cat /etc/indef/indef.toml)"

apt-get install -y -qq --no-install-recommends e2fsprogs xfsprogs btrfs-progs systemd
systemd-analyze --man=no verify /usr/lib/systemd/system/indef.service /usr/lib/systemd/system/indef.timer \
  /usr/lib/systemd/system/indef-watch.service /usr/lib/systemd/system/indef-trace.socket \
  /usr/lib/systemd/system/indef-trace@.service /usr/lib/systemd/system/flashd@.service
indef demo
use_flashd
systemctl enable indef.timer indef-watch.service

# An edited configuration stays until it is purged.
echo '# mine' >>/etc/indef/indef.toml
apt-get remove -y -qq indef
grep -q mine /etc/indef/indef.toml
apt-get purge -y -qq indef flashd
traces >/tmp/after
diff /tmp/before /tmp/after

# rpm's database does not know the shell that the packages' scripts ask for.
apt-get install -y -qq --no-install-recommends rpm
rpm --install --nodeps ./indef-*.rpm ./flashd-*.rpm
are_installed
indef demo
use_flashd
systemctl enable indef.timer indef-watch.service
rpm --verify --nodeps indef flashd
rpm --erase indef flashd
# State stays: rpm has no purge.
rm -rf /var/lib/indef
traces >/tmp/after
diff /tmp/before /tmp/after
echo "installed, used and removed without a trace"
