# Builds the packages for 64-bit ARM in this clean Debian root, which is for x86-64, and tries them by emulation: the
# programs in QEMU's emulator of programs, then indef in guests with Debian's kernels of 4 and of 16 KiB pages, on
# file systems of its own. Each step is a run of its own (`cargo xtask fresh --cross`).
#
# usage: cross.sh prepare|build|programs|guests
set -eu
export DEBIAN_FRONTEND=noninteractive
say() { echo "=== $*"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}
get() {
  apt-get install -y -qq --no-install-recommends "$@" || fail "apt cannot install $*"
}
# What the archive that this root reads may lack. All else that apt refuses is a mistake here.
need() {
  apt-cache policy | grep -q "[=,]n=$1,.*b=$2\$" && return
  skip "the archive has no $1 for $2"
}
skip() {
  echo "skipped: $*"
  exit 1
}
# The lines that the command prints, compared with what is expected.
is() {
  expected=$1
  shift
  found=$("$@") || fail "$*: exit status $?"
  [ "$found" = "$expected" ] || fail "$*: '$found', not '$expected'"
}

tried=/srv/tried
emulator=qemu-aarch64
indef="$emulator $tried/usr/bin/indef"
flashd="$emulator $tried/usr/bin/flashd"

case ${1:-} in
prepare)
  set -x
  dpkg --add-architecture arm64
  apt-get update -qq || skip "apt cannot read the archive"
  need trixie arm64
  need trixie-backports amd64
  need trixie-backports arm64
  # The compiler and its library are of one version, and the release's own too old; its libelf.a is not whole.
  # libdw goes with libelf, for rpm.
  get -t trixie-backports cargo rustc libstd-rust-dev:arm64 libelf-dev libelf-dev:arm64 libdw1t64
  get gcc make pkg-config clang libc6-dev zlib1g-dev rpm qemu-user \
    gcc-aarch64-linux-gnu libc6-dev:arm64 zlib1g-dev:arm64
  ;;
build)
  cargo xtask packages --machine aarch64
  ;;
programs)
  rm -rf $tried
  for package in target/packages/*_arm64.deb; do
    is arm64 dpkg-deb --field "$package" Architecture
    dpkg-deb --extract "$package" $tried
  done
  for package in target/packages/*.aarch64.rpm; do
    is aarch64 rpm --query --queryformat '%{ARCH}' --package "$package"
  done
  version=$(dpkg-deb --field target/packages/indef_*_arm64.deb Version)
  for program in indef flashd; do
    headers=$(aarch64-linux-gnu-readelf --file-header --program-headers "$tried/usr/bin/$program")
    case $headers in
    *INTERP*) fail "$program is linked with libraries of the system" ;;
    *"Machine:"*AArch64*) ;;
    *) fail "$program is for another machine" ;;
    esac
    case $($emulator "$tried/usr/bin/$program" --version) in
    "$program $version" | "$program $version ("*) ;;
    *) fail "$program tells another version" ;;
    esac
  done
  say "$($indef --version), $($flashd --version): static, for AArch64"

  $indef --help | grep -q ' scan ' || fail "--help tells nothing of scan"
  is "$(cat packaging/indef.toml)" $indef config example
  $indef config check $tried/etc/indef/indef.toml || fail "config check finds mistakes in the packaged one"
  echo 'jobs = "many"' >/tmp/wrong.toml
  ! $indef config check /tmp/wrong.toml || fail "config check finds no mistake"
  say "--help, config example and config check work"

  rm -rf /srv/files && mkdir /srv/files
  for n in 1 2 3; do head -c 300000 /dev/urandom >"/srv/files/$n"; done
  $indef scan --json /srv/files >/tmp/scan.json || fail "scan: exit status $?"
  grep -q '"totals":{"files":3,' /tmp/scan.json || fail "scan does not see three files: $(cat /tmp/scan.json)"
  printf 'fio version 2 iolog\n/srv/files/1 add\n/srv/files/1 open\n/srv/files/1 read 0 4096\n' >/tmp/log
  rm -f /tmp/profile
  $indef profile import /tmp/profile /tmp/log || fail "profile import: exit status $?"
  $indef profile show /tmp/profile | grep -q /srv/files/1 || fail "profile show does not name the file"
  $indef doctor >/tmp/doctor || fail "doctor: exit status $?"
  grep -q '(aarch64)' /tmp/doctor || fail "doctor tells another machine"
  $flashd profiles | grep -q zn540 || fail "flashd profiles lacks one"
  say "scan, profile, doctor and flashd profiles work"
  ;;
guests)
  command -v qemu-system-aarch64 >/dev/null || get qemu-system-arm kmod cpio xz-utils
  guest=/srv/guest
  rm -rf $guest /srv/debs && mkdir -p $guest/usr/bin $guest/usr/sbin $guest/usr/lib /srv/debs/partial
  for folder in bin sbin lib; do ln -s usr/$folder $guest/$folder; done
  # The programs, with what they depend on, as if nothing were installed.
  : >/tmp/status
  apt-get -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status=/tmp/status \
    -o Dir::Cache::archives=/srv/debs -o Debug::NoLocking=true -y -qq --no-install-recommends --download-only install \
    busybox-static kmod mount util-linux coreutils e2fsprogs xfsprogs btrfs-progs >/dev/null ||
    fail "apt cannot fetch the programs of the guests"
  for package in /srv/debs/*.deb; do dpkg-deb --extract "$package" $guest; done
  mkdir -p $guest/proc $guest/sys $guest/dev $guest/tmp $guest/run $guest/var/tmp $guest/etc $guest/opt
  cp $tried/usr/bin/indef $guest/usr/bin/
  cp packaging/cross-guest.sh $guest/init
  chmod 755 $guest/init
  for kernel in arm64 arm64-16k; do
    image=$(apt-cache show "linux-image-$kernel:arm64/trixie" |
      sed -n 's/^Depends: .*\(linux-image-[0-9][^ ]*\).*/\1/p' | head -n 1)
    rm -rf /srv/kernel && mkdir /srv/kernel
    (cd /srv/kernel && apt-get download -qq "$image:arm64") || fail "apt cannot fetch the kernel $image"
    dpkg-deb --extract /srv/kernel/*.deb /srv/kernel
    version=${image#linux-image-}
    # Debian 14 has them below /usr.
    [ -d /srv/kernel/lib ] || ln -s usr/lib /srv/kernel/lib
    depmod --basedir /srv/kernel "$version"
    rm -rf $guest/usr/lib/modules
    for module in loop ext4 xfs btrfs crc32c_generic; do
      modprobe --dirname /srv/kernel --set-version "$version" --show-depends "$module" || true
    done | sed -n 's|^insmod /srv/kernel/\([^ ]*\).*|\1|p' | sort -u | while IFS= read -r file; do
      install -D /srv/kernel/"$file" $guest/usr/lib/modules/"${file#*lib/modules/}"
    done
    find $guest/usr/lib/modules -name '*.xz' -exec xz --decompress {} +
    cp /srv/kernel/lib/modules/"$version"/modules.order /srv/kernel/lib/modules/"$version"/modules.builtin* \
      $guest/usr/lib/modules/"$version"/
    depmod --basedir $guest "$version"
    (cd $guest && find . | cpio --create --format=newc --quiet) >/srv/initrd
    say "a guest with $image"
    timeout 1500 qemu-system-aarch64 -machine virt -cpu neoverse-n1 -smp 2 -m 2048 -nic none -nographic -no-reboot \
      -kernel /srv/kernel/boot/vmlinuz-"$version" -initrd /srv/initrd -append "console=ttyAMA0 panic=-1 quiet" \
      </dev/null | tee /srv/console
    grep -q '^=== all of it works' /srv/console || fail "the guest with $image"
  done
  ;;
*)
  sed -n '/^# usage/s/^# //p' "$0" >&2
  exit 2
  ;;
esac
