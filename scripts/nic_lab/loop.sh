# Two NICs joined by a cable: tests each command that receives.
. /common.sh
load
default_route
hand_over "$A" > /dev/null
hand_over "$B" > /dev/null
echo 448 > /proc/sys/vm/nr_hugepages
own="udp 10.7.0.9:1 > 10.7.0.1:9 size 100B"

section gen
netlathe gen --out pci:"$A" --in pci:"$B" --stream "$own" --rate 1kpps --count 200; echo "status $?"

section measure
begin measure --in pci:"$B" --count 100 --duration 30s
netlathe gen --out pci:"$A" --stream "$own" --rate 1kpps --count 100 -q
wait $run; echo "status $?"; cat /tmp/run

section search
# A rate that the emulator can carry, so that the verdict does not depend on the host.
netlathe search --out pci:"$A" --in pci:"$B" --max 1kpps --trial 1s --loss 50%; echo "status $?"
section end
