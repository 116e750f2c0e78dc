# Two NICs of one model: every command that uses NICs, links that go down, and runs that are killed.
. /common.sh
load
default_route
far_end c "$C" 1
far_end s "$D" 2

section linux-has-it
netlathe gen --out pci:"$A" --stream "$stream size 100B" --rate 200pps --count 10; echo "status $?"

section hand-over
hand_over "$A"
hand_over "$B"

section ordinary-pages
watch; netlathe gen --out pci:"$A" --stream "$stream size 100B" --rate 1kpps --count 100 -q; echo "status $?"; watched

section huge-pages
netlathe doctor | grep 'huge pages'
sh -c "$(netlathe doctor | grep '^--  huge pages' | sed 's/.*: //')"
netlathe doctor | grep 'huge pages'

section gen
watch; netlathe gen --out pci:"$A" --stream "$stream size random 64B-1518B" --rate 1kpps --count 200; echo "status $?"; watched

section short-address
watch; netlathe gen --out pci:"${A#0000:}" --stream "$stream size 100B" --rate 1kpps --count 50 -q; echo "status $?"; watched

section fillers
# Few enough frames for the buffer of the cable, which is a UDP socket on the host.
watch
netlathe gen --out pci:"$A" --line-rate 10M --pacer filler --gap 10ms --count 8 --stream "$stream size 100B"; echo "status $?"
watched

section shape
begin shape --in pci:"$A" --out pci:"$B"
ping_through 5
ip netns exec s iperf3 -s -1 -D; sleep 0.5
ip netns exec c iperf3 -c 10.7.0.2 -t 2 -i 0 | grep receiver

section link
echo "@@set_link nic1 off"; sleep 1; ping_through 1
echo "@@set_link nic1 on"; sleep 1; ping_through 3
finish

section no-link
echo "@@set_link nic1 off"; sleep 1
netlathe gen --out pci:"$A" --stream "$stream size 100B" --rate 1kpps --count 50; echo "status $?"
echo "@@set_link nic1 on"; sleep 1

section kill
begin shape --in pci:"$A" --out pci:"$B"
kill -9 $run; wait $run

section emulate
begin emulate --between pci:"$A" pci:"$B" --both 'delay 60ms'
ping_through 5
finish

section limit
begin limit --in pci:"$A" --out pci:"$B" --key dst-ip --rate 40kbps --burst 4000B --mode police
ip netns exec c ping -q -c 40 -i 0.05 -W 1 -s 972 10.7.0.2 | tail -2
finish

section second-process
begin gen --out pci:"$A" --stream "$stream size 100B" --rate 200pps --duration 60s
netlathe gen --out pci:"$A" --stream "$stream size 100B" --rate 200pps --count 10; echo "status $?"
finish
section end
