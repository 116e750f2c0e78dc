#!/usr/bin/env bash
# Builds the parts of a release in target/package, and tries each in a clean root:
#   netlathe.deb       for Debian 12, with live ports: installed by apt, then `netlathe doctor`
#   netlathe-static    one file for any Linux, without live ports: run in an empty root on a capture
#   netlathe-*.whl     the Python package with netlathe-static in it: installed and run in a root without anything else
#   the five crates    cargo publish --dry-run
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"
out=$PWD/target/package
target=x86_64-unknown-linux-musl

say() { echo "package: $*"; }
need() { "$@" >/dev/null 2>&1 || { say "$needed is missing: $remedy" >&2; exit 2; }; }
needed=cargo-deb remedy="cargo install cargo-deb --locked"; need cargo deb --version
needed=debootstrap remedy="apt-get install debootstrap musl-tools"; need command -v debootstrap
needed=musl-gcc remedy="apt-get install debootstrap musl-tools"; need command -v musl-gcc
needed="the target $target" remedy="rustup target add $target"; need test -d "$(rustc --print sysroot)/lib/rustlib/$target"
needed="root" remedy="a clean root is entered by chroot"; need test "$(id -u)" = 0

mkdir -p "$out"
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT

say "the static binary"
cargo build --release --target "$target" -p netlathe-cli --no-default-features
install -m 755 "target/$target/release/netlathe" "$out/netlathe-static"
strip "$out/netlathe-static"

say "the static binary in an empty root"
mkdir "$root/empty"
cp "$out/netlathe-static" "$root/empty/netlathe"
inside() { chroot "$root/empty" /netlathe "$@"; }
inside gen --out pcap:/in.pcap --count 1000 --rate 1Gbps --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000' -q
inside shape --in pcap:/in.pcap --out pcap:/out.pcap --gap 10us
inside measure --pcap /out.pcap --expect 'fixed 10us' -q
test "$(stat -c %s "$root/empty/out.pcap")" = "$(stat -c %s "$root/empty/in.pcap")"

say "the Python wheel with the static binary, in an environment that has nothing else"
rm -f "$out"/netlathe-*.whl
python3 -m venv "$root/venv"
NETLATHE="$out/netlathe-static" NETLATHE_WHEEL_TAG=manylinux2014_x86_64.musllinux_1_1_x86_64 \
    "$root/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$out" ./python
"$root/venv/bin/pip" install --quiet --no-index "$out"/netlathe-*.whl
(cd "$root" && env -i PATH=/nonexistent "$root/venv/bin/python" -c '
import netlathe
netlathe.gen(out="pcap:in.pcap", stream="udp 10.0.0.1:1000 > 10.0.0.2:2000", count=1000).wait()
assert netlathe.shape(in_="pcap:in.pcap", out="wire:10G", gap="10us").wait().shape.gap.mean == 10e-6')

say "the Debian package"
cargo build --release -p netlathe-cli
rm -rf target/manual
target/release/netlathe manual --to target/manual
cargo deb -p netlathe-cli --no-build --output "$out/netlathe.deb"

say "the Debian package in a clean root"
debootstrap --variant=minbase bookworm "$root/debian" "${MIRROR:-http://deb.debian.org/debian}" >"$out/debootstrap.log"
cp "$out/netlathe.deb" "$root/debian/tmp/"
cp /etc/resolv.conf "$root/debian/etc/" 2>/dev/null || true
# The host names of this machine, such as a mirror's, and its apt proxy.
cp /etc/hosts "$root/debian/etc/"
cp /etc/apt/apt.conf.d/* "$root/debian/etc/apt/apt.conf.d/" 2>/dev/null || true
chroot "$root/debian" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq /tmp/netlathe.deb >"$out/install.log"
chroot "$root/debian" netlathe doctor
chroot "$root/debian" netlathe shape --help >/dev/null
test -s "$root/debian/usr/share/man/man1/netlathe-shape.1.gz"

say "the crates"
cargo publish --dry-run --allow-dirty -p netlathe-units -p netlathe-packet -p netlathe-measure -p netlathe-engine -p netlathe-probe 2>"$out/publish.log" ||
    { tail -20 "$out/publish.log" >&2; exit 1; }

say "$out holds netlathe.deb, netlathe-static and the Python wheel"
