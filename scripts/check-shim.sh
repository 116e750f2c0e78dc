#!/usr/bin/env bash
# Compiles the shim against the DPDK of another Debian release. apt-get downloads the headers from the mirror of this
# machine and verifies them with Debian's key. They are unpacked into a folder; nothing is installed.
#   scripts/check-shim.sh FOLDER RELEASE VERSION      such as: scripts/check-shim.sh target/dpdk trixie 24.11
# Prints what it compiled. Exits with 77 and `SKIP: why` if it cannot try, and with 1 if the shim does not compile.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '4s/^#  *//p' "$0" >&2; exit 2; }
shim=$(cd "$(dirname "$0")/../crates/dpdk-sys/shim" && pwd)
release=$2 version=$3
mkdir -p "$1/$release"
folder=$(cd "$1/$release" && pwd)

skip() {
    echo "SKIP: DPDK $version of Debian $release: $1"
    exit 77
}

for program in apt-get dpkg-deb pkg-config cc flock; do
    command -v $program >/dev/null || skip "$program is not installed"
done
# One process at a time. The next one finds what this one unpacked.
exec 9>"$folder/lock"
flock 9

fetch() {
    local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -f $keys ] || skip "there is no $keys"
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $3 == "main" && !/security/ {print $2; exit}')
    [ -n "$mirror" ] || skip "this machine's apt knows no Debian packages (apt-get update?)"
    rm -rf "$folder/apt" "$folder/dpdk"
    mkdir -p "$folder"/apt/{state/lists/partial,cache/archives/partial}
    touch "$folder/apt/status"
    echo "deb [signed-by=$keys] $mirror $release main" >"$folder/apt/sources.list"
    cat >"$folder/apt/conf" <<CONF
Dir::State "$folder/apt/state";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt/cache";
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "1";
Acquire::http::Timeout "20";
CONF
    export APT_CONFIG=$folder/apt/conf
    apt-get update --quiet=2 --error-on=any >"$folder/log" 2>&1 || skip "the list of packages is unavailable: $(tail -n1 "$folder/log")"
    (cd "$folder/apt" && apt-get download --quiet=2 libdpdk-dev) >"$folder/log" 2>&1 ||
        skip "libdpdk-dev is unavailable: $(tail -n1 "$folder/log")"
    dpkg-deb -x "$folder"/apt/libdpdk-dev_*.deb "$folder/unpacked"
    # The .pc files name the prefix of an installation.
    sed -i "s|^prefix=.*|prefix=$folder/dpdk/usr|" "$folder"/unpacked/usr/lib/*/pkgconfig/libdpdk*.pc
    mv "$folder/unpacked" "$folder/dpdk"
    rm -rf "$folder/apt" "$folder/log"
}

[ -d "$folder/dpdk" ] || fetch
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(echo "$folder"/dpdk/usr/lib/*/pkgconfig)
found=$(pkg-config --modversion libdpdk)
case $found in
    "$version" | "$version".*) ;;
    *) skip "it has $found by now" ;;
esac
cflags=$(pkg-config --cflags libdpdk)
# -isystem, as in build.rs: DPDK's own headers cause warnings. The assertion checks that these are the intended headers.
{
    echo '#include "shim.c"'
    echo '#include "events.c"'
    echo "_Static_assert(RTE_VERSION >= RTE_VERSION_NUM(${version%.*}, ${version#*.}, 0, 0) &&"
    echo "    RTE_VERSION < RTE_VERSION_NUM(${version%.*}, ${version#*.} + 1, 0, 0), \"other headers\");"
} | cc -x c -fsyntax-only -Wall -Wextra -Werror -iquote "$shim" ${cflags//-I/-isystem } - || {
    echo "the shim does not compile with DPDK $found of Debian $release"
    exit 1
}
echo "the shim compiles with DPDK $found of Debian $release"
