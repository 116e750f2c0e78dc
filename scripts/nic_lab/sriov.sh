# A machine with one NIC, which Linux keeps. netlathe uses a virtual function of it.
. /common.sh
load
far_end c "$C" 1
kept=$(interface_of "$A")
ip link set "$kept" up; ip addr add 10.7.0.100/24 dev "$kept"; ip route add default via 10.7.0.1
echo 448 > /proc/sys/vm/nr_hugepages

section doctor
netlathe doctor | grep -E "^..  $A"
command=$(netlathe doctor | grep "$A SR-IOV" | sed 's/.*keeps [^:]*: //')
sh -c "$command"; echo "status $?"

section hand-over
function=$(basename "$(readlink "/sys/bus/pci/devices/$A/virtfn0")")
hand_over "$function"
netlathe doctor | grep -E "^..  $function"

section gen
watch; netlathe gen --out pci:"$function" --stream "$stream size 100B" --rate 1kpps --count 200 -q; echo "status $?"
ping -q -c 3 -i 0.2 -W 5 10.7.0.1 | grep loss; watched

section foreign-source
watch
netlathe gen --out pci:"$function" --stream "$stream size 100B smac 02:00:00:00:00:99" --rate 1kpps --count 200 -q; echo "status $?"
watched
section end
