#!/usr/bin/env bash
# Fetches what a guest needs besides the machine's own packages: Debian's kernel, and QEMU 10 from backports for igb with
# SR-IOV. Unpacks them below FOLDER and installs nothing.      get.sh FOLDER
set -euo pipefail
folder=$1
rm -rf "$folder.new"
mkdir -p "$folder.new"
new=$(cd "$folder.new" && pwd)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
apt=$new/apt
mkdir -p "$apt"/{state/lists/partial,cache/archives/partial}
touch "$apt/status"
mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $3 == "main" && !/security/ {print $2; exit}')
printf 'deb [signed-by=%s] %s %s main\n' $keys "$mirror" bookworm $keys "$mirror" bookworm-backports >"$apt/sources.list"
cat >"$apt/conf" <<C
Dir::State "$apt/state"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "-";
APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "1"; Acquire::http::Timeout "20";
C
export APT_CONFIG=$apt/conf
apt-get update --quiet=2 --error-on=any
kernel=$(apt-cache depends linux-image-amd64/bookworm | awk '/Depends: linux-image/ {print $2; exit}')
cd "$apt"
apt-get download --quiet=2 "$kernel/bookworm"
apt-get download --quiet=2 -t bookworm-backports qemu-system-x86 qemu-system-common qemu-system-data seabios

# Unpack only the modules that a guest loads; all of them take 400 MB.
modules='e1000 e1000e igb igbvf vmxnet3 virtio* vfio* irqbypass uio uio_pci_generic failover net_failover veth i2c-algo-bit dca af_packet'
mkdir -p "$new/kernel"
# tar fails for patterns without a match, but a module may be built into the kernel.
dpkg-deb --fsys-tarfile linux-image*.deb | tar -x -C "$new/kernel" --wildcards './boot/vmlinuz*' \
    './lib/modules/*/modules.*' $(printf './lib/modules/*/%s.ko ' $modules) 2>/dev/null || true
for package in qemu*.deb seabios*.deb; do dpkg-deb -x "$package" "$new/qemu"; done
cd "$new"
rm -rf "$apt"
depmod -b "$new/kernel" "$(basename "$new"/kernel/lib/modules/*)"
rm -rf "$folder"
mv "$new" "$folder"
