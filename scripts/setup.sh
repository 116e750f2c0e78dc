#!/usr/bin/env bash
# Makes sure that this machine has what is needed to build and test netlathe. Prints nothing if so. Otherwise installs it
# (Debian and derivatives, as root), or lists what is missing (elsewhere) and exits with 2.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"

# package | test whether it is installed | why it is needed
needs='
gcc|have gcc|compiles the shim over DPDK
libc6-dev|has_header stdio.h|the C library, for the shim
make|have make|runs the Makefile
pkg-config|have pkg-config|finds DPDK
clang|have clang|compiles the part of slice that runs in the kernel
libbpf-dev|has_header bpf/bpf_helpers.h|headers for the same
libdpdk-dev|pkg-config --atleast-version=22.11 libdpdk|DPDK 22.11 or later, with all its drivers
iproute2|have ip|builds labs
ethtool|have ethtool|turns offloads off in labs
util-linux|have unshare && have setpriv|labs without root
procps|have pgrep|looks after processes in tests
iputils-ping|have ping|traffic for the demo and the guides
iperf3|have iperf3|traffic for the demo and the tests
curl|have curl|traffic for the demo
tcpdump|have tcpdump|looks at frames from outside in tests
python3|have python3|the demo, and traffic for the tests
python3-pytest|has_pytest|tests of the Python package
fuse3|have fusermount3|slow disks without root
git|have git|tries slow disks in tests
'
[ "${1:-}" != bench ] || needs+='dpdk-dev|have dpdk-testpmd|testpmd, beside which gen is measured
'

have() { command -v "$1" >/dev/null 2>&1; }
has_pytest() { python3 -c 'import pytest' || /usr/bin/python3 -c 'import pytest'; }
has_header() { have gcc && echo "#include <$1>" | gcc -E - >/dev/null 2>&1; }

missing=()
look() {
    missing=()
    local package test why
    while IFS='|' read -r package test why; do
        [ -n "$package" ] || continue
        eval "$test" >/dev/null 2>&1 || missing+=("$package|$why")
    done <<<"$needs"
}

show_missing() {
    local entry
    for entry in "${missing[@]}"; do printf '  %-13s %s\n' "${entry%%|*}" "${entry#*|}"; done
}

give_up() {
    echo "setup: $1" >&2
    exit 2
}

look
if [ ${#missing[@]} -gt 0 ]; then
    packages=("${missing[@]%%|*}")
    if ! have apt-get; then
        echo "setup: missing, by their Debian names:" >&2
        show_missing >&2
        give_up "this is not a Debian system: install what these are called here (DPDK's development files are 'dpdk-devel' on Fedora, 'dpdk' on Arch), then try again"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: missing:" >&2
        show_missing >&2
        give_up "as root: apt-get update && apt-get install --yes --no-install-recommends ${packages[*]}"
    fi
    echo "setup: installing with apt-get:"
    show_missing
    export DEBIAN_FRONTEND=noninteractive
    install() { apt-get install --yes --quiet --no-install-recommends "${packages[@]}"; }
    # Fetch the package lists only if apt does not know a package, or if the mirror no longer has the known version.
    if ! apt-cache show "${packages[@]}" >/dev/null 2>&1 || ! install; then
        apt-get update --quiet
        install || give_up "apt-get could not install ${packages[*]}: its message is above"
    fi
    look
    if [ ${#missing[@]} -gt 0 ]; then
        echo "setup: still missing after the installation:" >&2
        show_missing >&2
        give_up "this release is too old: Debian 12 or Ubuntu 23.04 and later have what is needed"
    fi
fi

# Cargo.toml is the only place that names the required Rust.
needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
have cargo || give_up "cargo is missing; Rust $needed or later comes with rustup: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
version=$(cargo --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$needed" "${version%%-*}" | sort -V | head -n1)" != "$needed" ]; then
    give_up "cargo is $version, $needed or later is needed: rustup update stable (https://rustup.rs has rustup)"
fi
