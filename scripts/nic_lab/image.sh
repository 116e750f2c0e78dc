#!/usr/bin/env bash
# Makes an initramfs for a guest: netlathe, DPDK's drivers of emulated NICs, some programs, and the kernel's modules.
#   image.sh NETLATHE MODULES OUT        MODULES: …/lib/modules/VERSION
set -euo pipefail
netlathe=$1 modules=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
libraries=/lib/x86_64-linux-gnu
mkdir -p "$root"/{bin,lib,lib64,proc,sys,dev,tmp,run,etc,usr/bin}
ln -s ../lib "$root/usr/lib"
ln -s bin "$root/sbin"

put() {
    install -D "$(readlink -f "$1")" "$root$2"
    strip --strip-debug "$root$2" 2>/dev/null || true
}
put_libraries() {
    ldd "$1" 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" {print $3} $1 ~ "^/" {print $1}' | sort -u | while read -r library; do
        case $library in
        *ld-linux*) put "$library" /lib64/ld-linux-x86-64.so.2 ;;
        *) put "$library" "$libraries/$(basename "$library")" ;;
        esac
    done
}
put_program() {
    put "$1" "/bin/$(basename "$1")"
    put_libraries "$1"
}

put /usr/bin/busybox /bin/busybox
for applet in mount umount cat ls echo sleep grep sed awk head tail kill mkdir basename readlink poweroff modprobe; do
    ln -s busybox "$root/bin/$applet"
done
put_program /bin/dash
ln -s dash "$root/bin/sh"
for program in "$netlathe" ip ping iperf3 ethtool; do put_program "$(command -v "$program")"; done

# DPDK loads each driver from its plugin folder. The dynamic loader finds drivers that depend on each other.
plugins=$(dirname "$(ls /usr/lib/x86_64-linux-gnu/dpdk/pmds-*/librte_net_e1000.so | head -1)")
mkdir -p "$root$plugins"
for name in bus_pci bus_vdev mempool_ring net_e1000 net_virtio net_vmxnet3 net_null net_ring; do
    driver=$(ls "$plugins/librte_$name".so.?? | head -1)
    put "$driver" "$libraries/$(basename "$driver")"
    put_libraries "$driver"
    ln -s "$libraries/$(basename "$driver")" "$root$plugins/librte_$name.so"
done

version=$(basename "$modules")
base=$(dirname "$(dirname "$(dirname "$modules")")")
for module in e1000e e1000 igb igbvf vmxnet3 virtio_net virtio_pci vfio-pci vfio_iommu_type1 uio_pci_generic veth af_packet; do
    modprobe -d "$base" -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" {print $2}' || true
done | sort -u | while read -r file; do
    install -D "$file" "$root/lib/modules/$version/kernel/$(basename "$file")"
    strip --strip-debug "$root/lib/modules/$version/kernel/$(basename "$file")"
done
cp "$modules"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/" 2>/dev/null || true
depmod -b "$root" "$version"

echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
install "$here/common.sh" "$root/common.sh"
cat >"$root/init" <<'I'
#!/bin/sh
export PATH=/bin HOME=/ TERM=dumb
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs run /run; mount -t tmpfs shm /dev/shm
ip link set lo up
exec > /dev/console 2>&1 < /dev/null
sh /job.sh
poweroff -f
I
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$out"
