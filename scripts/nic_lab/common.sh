# Sourced by each job in a guest. /args gives the addresses: A and B are the NICs under test, C and D virtio NICs whose
# other ends are A and B. DRIVER is the kernel's driver of A and B, TO the driver that hands them over.
. /args

# Starts a section of the log.
section() { echo "#### $*"; }

stream="udp 10.7.0.9:1 > 10.7.0.1:9 dmac 52:54:00:00:00:03"

interface_of() { ls "/sys/bus/pci/devices/$1/net" 2>/dev/null || ls /sys/bus/pci/devices/"$1"/virtio*/net; }

load() { for module in "$DRIVER" virtio_pci virtio_net vfio_iommu_type1 vfio-pci uio_pci_generic veth; do modprobe $module; done; }

# Makes a namespace with one NIC that Linux drives: far_end NAME ADDRESS HOST-NUMBER
far_end() {
  ip netns add $1
  ip link set "$(interface_of "$2")" netns $1 name $1
  ip -n $1 addr add 10.7.0.$3/24 dev $1
  ip netns exec $1 sh -c "echo 1 > /proc/sys/net/ipv6/conf/$1/disable_ipv6"
  ip -n $1 link set $1 up promisc on
}

# Adds a default route through neither NIC under test. Without one, doctor cannot tell which NIC carries the login.
default_route() {
  ip link add up0 type veth peer name up1
  ip addr add 10.9.0.1/24 dev up0
  ip link set up1 up; ip link set up0 up
  ip route add default via 10.9.0.2
}

# Hands a NIC over with the command that doctor prints, or by sysfs if TO is another driver.
hand_over() {
  if [ "$TO" = vfio-pci ]; then
    command=$(netlathe doctor | grep "^--  $1 " | sed 's/.*to use it as pci:[^ ]*: //; s/.*bound to no driver[^:]*: //')
    echo "$command"
    sh -c "$command" || echo "FAILED: $command"
  else
    echo "$TO" > "/sys/bus/pci/devices/$1/driver_override"
    [ -e "/sys/bus/pci/devices/$1/driver" ] && echo "$1" > "/sys/bus/pci/devices/$1/driver/unbind"
    echo "$1" > /sys/bus/pci/drivers_probe
  fi
  echo "$1 now: $(basename "$(readlink "/sys/bus/pci/devices/$1/driver")")"
}

# Runs netlathe in the background until it is ready. `finish` ends it and shows what it printed.
begin() {
  netlathe "$@" -v > /tmp/run 2>&1 &
  run=$!
  while ! grep -q ready /tmp/run && [ -d /proc/$run ]; do sleep 0.1; done
}
finish() { kill -INT $run 2>/dev/null; wait $run; echo "status $?"; grep -vE 'EAL|ready' /tmp/run; }

# Counts the frames that arrive at a far end.
watch() {
  ip netns exec c netlathe measure --in c --duration 60s -v > /tmp/arrived 2>&1 &
  watching=$!
  while ! grep -q ready /tmp/arrived; do sleep 0.1; done
}
watched() { kill -INT $watching; wait $watching; grep -E 'stream 0|  in ' /tmp/arrived || echo "nothing arrived"; }

ping_through() { ip netns exec c ping -q -c "$1" -i 0.2 -W 5 10.7.0.2 | tail -2; }
