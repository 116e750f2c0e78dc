# An IOMMU that cannot remap interrupts, as many virtual machines have.
. /common.sh
load
default_route
section doctor
netlathe doctor | grep IOMMU
hand_over "$A"
netlathe gen --out pci:"$A" --stream "$stream size 100B" --rate 1kpps --count 50 -q; echo "status $?"
section remedy
sh -c "$(netlathe doctor | grep '^--  IOMMU' | sed 's/.*vfio refuses NICs: //; s/ (.*//')"
netlathe doctor | grep IOMMU
netlathe gen --out pci:"$A" --stream "$stream size 100B" --rate 1kpps --count 50 -q; echo "status $?"
section end
