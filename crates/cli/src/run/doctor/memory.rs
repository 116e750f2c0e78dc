//! Memory for DPDK, and the IOMMU that translates its addresses for NICs.

use super::machine::{Finding, Machine};

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    vec![huge_pages(machine), large_tables(machine), iommu(machine)]
}

/// Memory that a pipeline without fillers requests from DPDK, in MiB (`dataplane::Config::memory_mib`). If less is free
/// in huge pages, ordinary pages are used.
const PIPELINE_MIB: u64 = 288;
/// The largest request of a pipeline, in MiB: with long delays and fillers.
const MOST_MIB: u64 = 880;

/// Free huge pages of all sizes. They need not be mounted: DPDK maps them anonymously.
fn huge_pages(machine: &Machine) -> Finding {
    const WHAT: &str = "huge pages";
    let folder = "sys/kernel/mm/hugepages";
    let free_mib: u64 = machine
        .names(folder)
        .iter()
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let free: u64 = machine.read(&format!("{folder}/{name}/free_hugepages"))?.parse().ok()?;
            Some(kib * free / 1024)
        })
        .sum();
    if free_mib >= PIPELINE_MIB {
        return Finding::good(
            WHAT,
            format!("{free_mib} MiB free; a pipeline uses {PIPELINE_MIB} MiB, with long delays up to {MOST_MIB} MiB"),
        );
    }
    let found = match free_mib {
        0 => "none free; ordinary pages are used, which matters only for NICs on PCI, and without an IOMMU they need huge ones".to_owned(),
        some => format!("{some} MiB free, fewer than the {PIPELINE_MIB} MiB of a pipeline: ordinary pages are used"),
    };
    Finding::bad(WHAT, found, format!("echo {} > /proc/sys/vm/nr_hugepages", MOST_MIB.div_ceil(2)))
}

/// Whether the kernel grants the large pages that `limit` requests for its tables.
fn large_tables(machine: &Machine) -> Finding {
    const WHAT: &str = "pages of large tables";
    const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    let enabled = machine.read(FILE).unwrap_or_default();
    let chosen = enabled.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0));
    match chosen {
        Some(chosen @ ("always" | "madvise")) => Finding::good(WHAT, format!("large pages on request ({chosen})")),
        _ => Finding::bad(
            WHAT,
            "small pages: limit is slower with a million users and more",
            format!("echo madvise > /{FILE}"),
        ),
    }
}

fn iommu(machine: &Machine) -> Finding {
    const WHAT: &str = "IOMMU";
    let groups = machine.names("sys/kernel/iommu_groups").len();
    if groups > 0 && !remaps_interrupts(machine) {
        const PARAMETER: &str = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
        let found = format!("{groups} groups, but no interrupt remapping");
        if machine.read(PARAMETER).as_deref() == Some("Y") {
            return Finding::good(WHAT, format!("{found}, which vfio does without: NICs can be bound to vfio-pci"));
        }
        let remedy = if machine.read(PARAMETER).is_some() {
            format!("echo Y > /{PARAMETER} (a NIC could then raise interrupts of other devices)")
        } else {
            "modprobe vfio_iommu_type1 allow_unsafe_interrupts=1 (a NIC could then raise interrupts of other devices)"
                .to_owned()
        };
        return Finding::bad(WHAT, format!("{found}: vfio refuses NICs"), remedy);
    }
    if groups > 0 {
        return Finding::good(WHAT, format!("{groups} groups: NICs can be bound to vfio-pci"));
    }
    if machine.read("sys/module/vfio/parameters/enable_unsafe_noiommu_mode").as_deref() == Some("Y") {
        return Finding::good(WHAT, "no IOMMU, but vfio works without one: NICs can be bound to vfio-pci, unprotected");
    }
    Finding::bad(
        WHAT,
        "none; only NICs on PCI need one",
        "intel_iommu=on or amd_iommu=on on the kernel's command line, and in the firmware; \
         without one: modprobe vfio enable_unsafe_noiommu_mode=1",
    )
}

/// False if an Intel IOMMU reports that it cannot remap interrupts: bit 3 of the extended capability register (VT-d
/// specification, section 11.4.3). Other IOMMUs always can.
fn remaps_interrupts(machine: &Machine) -> bool {
    let folder = "sys/class/iommu";
    let capable = |name: &String| {
        let text = machine.read(&format!("{folder}/{name}/intel-iommu/ecap"))?;
        Some(u64::from_str_radix(&text, 16).ok()? >> 3 & 1 == 1)
    };
    machine.names(folder).iter().filter_map(capable).all(|capable| capable)
}

#[cfg(test)]
mod tests {
    use super::super::machine::FakeMachine;
    use super::*;

    #[test]
    fn huge_pages_of_all_sizes_count_when_they_suffice() {
        let (fake, machine) = FakeMachine::new(&[("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0")]);
        let none = huge_pages(&machine);
        assert!(!none.good && none.found.starts_with("none free"), "{none:?}");
        fake.write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1");
        let few = huge_pages(&machine);
        assert!(!few.good && few.found.starts_with("2 MiB free, fewer than"), "{few:?}");
        fake.write("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "2");
        let enough = huge_pages(&machine);
        assert!(enough.good && enough.found.starts_with("2050 MiB free"), "{enough:?}");
    }

    #[test]
    fn tables_have_large_pages_where_the_kernel_permits() {
        let (fake, machine) =
            FakeMachine::new(&[("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")]);
        assert_eq!(large_tables(&machine).found, "large pages on request (madvise)");
        fake.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
        assert!(!large_tables(&machine).good);
    }

    #[test]
    fn an_iommu_has_groups() {
        let (fake, machine) = FakeMachine::new(&[]);
        assert!(!iommu(&machine).good);
        fake.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
        assert!(iommu(&machine).found.contains("unprotected"));
        fake.write("sys/kernel/iommu_groups/0/type", "DMA");
        assert!(iommu(&machine).found.starts_with("1 groups"));
        fake.write("sys/class/iommu/dmar0/intel-iommu/ecap", "f02");
        let without = iommu(&machine);
        assert!(!without.good && without.found.contains("no interrupt remapping"), "{without:?}");
        assert!(without.remedy.as_deref().is_some_and(|remedy| remedy.contains("allow_unsafe_interrupts=1")));
        fake.write("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y");
        assert!(iommu(&machine).good);
        fake.write("sys/class/iommu/dmar0/intel-iommu/ecap", "f0a");
        assert!(iommu(&machine).good && iommu(&machine).found.ends_with("NICs can be bound to vfio-pci"));
    }
}
