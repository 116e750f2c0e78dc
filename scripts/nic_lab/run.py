#!/usr/bin/env python3
"""netlathe on NICs on PCI, without a NIC: guests in QEMU's software emulation, with Linux at both far ends.

    run.py [GUEST…]      the guests to run, by the start of their names; all without one

Each guest runs a job of this folder and prints sections. A list of checks says what each section must show: counts, order,
bytes and messages. Times are not judged, because a guest's clocks are rough. The whole takes five minutes on two CPUs.
Prints SKIP and the reason if QEMU or the packages are unavailable.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "target" / "nic-lab"
PATIENCE = 240  # seconds for a guest
PACKAGES = ["qemu-system-x86", "busybox-static", "cpio", "kmod", "binutils"]

# The cheapest CPU of QEMU that DPDK accepts.
MACHINE = "-machine q35 -accel tcg,thread=multi -cpu Nehalem -smp 2 -m 2048 -nodefaults -display none -no-reboot".split()
KERNEL_LINE = (
    "console=ttyS0 panic=-1 quiet intel_iommu=on iommu=pt mitigations=off nokaslr tsc=reliable clocksource=tsc no_timer_check"
)


class Guest:
    """One guest: the model of its NICs, the kernel's driver of it, and the job."""

    def __init__(self, name, nic, driver, job="ports", iommu="intremap=on,eim=off,caching-mode=on", to="vfio-pci", new=False, loop=False):
        self.name, self.nic, self.driver, self.job, self.iommu, self.to = name, nic, driver, job, iommu, to
        # Needs root ports and the newer QEMU, as igb does.
        self.new = new
        # One cable joins the two NICs under test.
        self.loop = loop


GUESTS = [
    Guest("e1000e", "e1000e", "e1000e"),
    Guest("vmxnet3", "vmxnet3", "vmxnet3"),
    Guest("virtio", "virtio-net-pci,disable-legacy=on,iommu_platform=on", "virtio_net"),
    Guest("igb", "igb", "igb", new=True),
    Guest("uio", "e1000e", "e1000e", iommu=None, to="uio_pci_generic"),
    Guest("loop", "e1000e", "e1000e", job="loop", loop=True),
    Guest("no-remapping", "e1000e", "e1000e", job="remap", iommu="intremap=off,caching-mode=on"),
    Guest("virtual-function", "igb", "igb", job="sriov", new=True),
]

# By section: what is checked, a pattern, and whether the pattern must or must not be found. Sections that a guest does not
# have are not checked.
CHECKS = {
    "ports": {
        "linux-has-it": [
            ("says that Linux has the NIC, and where the commands are", r"Linux has it.*netlathe doctor", True),
            ("status 2", r"(?m)^status 2$", True),
        ],
        "hand-over": [("doctor's commands bind both NICs", r"(?s)now: (vfio-pci|uio_pci_generic).*now: \1", True)],
        "ordinary-pages": [
            ("all frames arrive whole, or the run is refused", r"stream 0  100 received, 0 lost|needs huge pages", True),
        ],
        "huge-pages": [("doctor's number of pages is free", r"ok  huge pages", True)],
        "gen": [("all frames arrive", r"stream 0  200 received, 0 lost", True), ("status 0", r"(?m)^status 0$", True)],
        "short-address": [("03:00.0 is 0000:03:00.0", r"stream 0  50 received, 0 lost", True)],
        "fillers": [("all data arrive", r"stream 0  8 received, 0 lost", True), ("status 0", r"(?m)^status 0$", True)],
        "shape": [
            ("ping passes", r"5 received, 0% packet loss", True),
            ("TCP passes", r"bits/sec +receiver", True),
        ],
        "link": [
            ("nothing passes without a link", r"1 packets transmitted, 0 received", True),
            ("it passes again", r"3 received, 0% packet loss", True),
            ("the report says that the link was lost", r"warning: pci:\S+ lost its link 1 time during", True),
            ("status 0", r"(?m)^status 0$", True),
        ],
        "no-link": [("the report says that there is no link", r"warning: pci:\S+ had no link during the whole run", True)],
        "emulate": [("delays both ways after a kill -9", r"5 received, 0% packet loss", True), ("status 0", r"(?m)^status 0$", True)],
        "limit": [("drops what exceeds the rate", r"dropped +[1-9]\d* frames?: policed", True), ("passes the rest", r", 0 received", False)],
        "second-process": [
            ("a second process is refused by name", r"another netlathe \(process \d+\) uses NIC", True),
            ("status 2", r"(?m)^status 2$", True),
        ],
        "end": [],
    },
    "sriov": {
        "doctor": [("a virtual function is made", r"(?m)^status 0$", True)],
        "hand-over": [
            ("it is bound", r"now: vfio-pci", True),
            ("doctor says what it does not receive", r"only for its own MAC", True),
        ],
        "gen": [("all frames arrive", r"stream 0  200 received, 0 lost", True), ("Linux keeps the NIC", r"3 received, 0% packet loss", True)],
        "foreign-source": [("frames of other sources leave", r"stream 0  200 received, 0 lost", True)],
        "end": [],
    },
    "loop": {
        "gen": [("all frames arrive", r"200 sent, 200 received, 0 lost", True), ("status 0", r"(?m)^status 0$", True)],
        "measure": [("all frames arrive", r"stream 0  100 received, 0 lost", True), ("status 0", r"(?m)^status 0$", True)],
        "search": [("a verdict for 64 B", r"(?m)^64B .*\(\d+ trials\)$", True), ("status 0", r"(?m)^status 0$", True)],
        "end": [],
    },
    "remap": {
        "doctor": [
            ("doctor sees it", r"--  IOMMU .*no interrupt remapping", True),
            ("the error has the remedy", r"allow_unsafe_interrupts=1", True),
            ("status 2", r"(?m)^status 2$", True),
        ],
        "remedy": [("the remedy works", r"ok  IOMMU", True), ("status 0", r"(?m)^status 0$", True)],
        "end": [],
    },
}


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(0)


def prepare():
    """The kernel, QEMU and the image. Returns the folder of what was fetched, and the image."""
    missing = [p for p in PACKAGES if subprocess.run(["dpkg", "-s", p], capture_output=True, check=False).returncode]
    if missing and (not shutil.which("apt-get") or os.geteuid()):
        skip(f"{' '.join(missing)} missing, which only root can install")
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        command = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *missing]
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            skip(f"apt-get cannot install {' '.join(missing)}")
    got = CACHE / "got"
    if not got.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        print("fetching a kernel and QEMU 10", flush=True)
        if subprocess.run([HERE / "get.sh", got], check=False).returncode:
            skip("Debian's kernel and QEMU cannot be fetched")
    netlathe = os.environ.get("NETLATHE", ROOT / "target" / "release" / "netlathe")
    image = CACHE / "image.cpio"
    modules = next((got / "kernel/lib/modules").iterdir())
    subprocess.run([HERE / "image.sh", netlathe, modules, image], check=True)
    return got, image


def free_ports():
    """Two UDP ports that are free now."""
    pair = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for end in pair:
        end.bind(("127.0.0.1", 0))
    numbers = [end.getsockname()[1] for end in pair]
    for end in pair:
        end.close()
    return numbers


def command_line(guest, got, folder):
    """QEMU's command line. NICs 1 and 2 are under test; 3 and 4 are at the other ends of their cables."""
    qemu = ["qemu-system-x86_64"]
    if guest.new:
        share = got / "qemu/usr/share"
        qemu = [str(got / "qemu/usr/bin/qemu-system-x86_64"), "-L", str(share / "seabios"), "-L", str(share / "qemu")]
    kernel = next((got / "kernel/boot").glob("vmlinuz-*"))
    line = [*qemu, *MACHINE, "-kernel", str(kernel), "-initrd", f"{folder}/initrd", "-append", KERNEL_LINE]
    line += ["-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial", "-qmp", f"unix:{folder}/qmp,server=on,wait=off"]
    if guest.iommu:
        line += ["-device", "intel-iommu," + guest.iommu]
    far = "virtio-net-pci"
    ports = [free_ports(), free_ports()]
    cables = (1, 1, 2, 2) if guest.loop else (1, 2, 1, 2)
    plugged = set()
    for number, (cable, model) in enumerate(zip(cables, (guest.nic, guest.nic, far, far)), 1):
        bus, slot = "pcie.0", number + 2
        if guest.new and number < 3:
            line += ["-device", f"pcie-root-port,id=port{number},bus=pcie.0,addr={slot:#x},chassis={number}"]
            bus, slot = f"port{number}", 0
        place = f"netdev=net{number},mac=52:54:00:00:00:0{number},bus={bus},addr={slot:#x},romfile="
        # A cable is a pair of UDP sockets. QEMU's hubs would do, but a far end that sends while the near end is reset
        # then waits forever.
        near, far_end = reversed(ports[cable - 1]) if cable in plugged else ports[cable - 1]
        plugged.add(cable)
        cable_end = f"socket,id=net{number},udp=127.0.0.1:{far_end},localaddr=127.0.0.1:{near}"
        line += ["-netdev", cable_end, "-device", f"{model},id=nic{number},{place}"]
    return line


class Monitor:
    """QEMU's monitor, for cables that are pulled."""

    def __init__(self, path):
        self.path, self.socket = path, None

    def send(self, line):
        if self.socket is None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(self.path)
            self.socket.recv(4096)
            self.socket.sendall(b'{"execute":"qmp_capabilities"}\n')
            self.socket.recv(4096)
        command = {"execute": "human-monitor-command", "arguments": {"command-line": line}}
        self.socket.sendall(json.dumps(command).encode() + b"\n")


def run(guest, got, image):
    """The sections that a guest printed, by their names."""
    with tempfile.TemporaryDirectory(prefix="netlathe-nic-") as folder:
        first, second = ("0000:01:00.0", "0000:02:00.0") if guest.new else ("0000:00:03.0", "0000:00:04.0")
        files = pathlib.Path(folder, "files")
        files.mkdir()
        (files / "job.sh").write_bytes((HERE / f"{guest.job}.sh").read_bytes())
        (files / "args").write_text(
            f"DRIVER={guest.driver}\nTO={guest.to}\nA={first}\nB={second}\nC=0000:00:05.0\nD=0000:00:06.0\n"
        )
        archive = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=b"job.sh\nargs\n", cwd=files, stdout=subprocess.PIPE, check=True)
        pathlib.Path(folder, "initrd").write_bytes(image.read_bytes() + archive.stdout)
        log = (CACHE / f"{guest.name}.log").open("w")
        line = command_line(guest, got, folder)
        machine = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        watch = threading.Timer(PATIENCE, machine.kill)
        watch.start()
        monitor = Monitor(f"{folder}/qmp")
        sections, current = {}, ""
        try:
            for text in machine.stdout:
                text = text.rstrip()
                log.write(text + "\n")
                if text.startswith("@@"):
                    monitor.send(text[2:])
                elif text.startswith("#### "):
                    current = text[5:]
                    sections[current] = ""
                elif current:
                    sections[current] += text + "\n"
        finally:
            watch.cancel()
            machine.kill()
            machine.wait()
            log.close()
    return sections


# The guest's kernel prints this if the emulator no longer raises the timer interrupts of a CPU.
LOST_TIMER = "kthread timer wakeup didn't happen"


def result(guest, got, image):
    """The faults of a guest. A guest whose emulator loses a timer is started once more."""
    found = list(faults(guest, run(guest, got, image)))
    if found and LOST_TIMER in (CACHE / f"{guest.name}.log").read_text():
        print(f"{guest.name}: the emulator lost the timer of a CPU: once more", flush=True)
        found = list(faults(guest, run(guest, got, image)))
    return found


def faults(guest, sections):
    """Returns the checks that a guest fails."""
    for section, checks in CHECKS[guest.job].items():
        if section not in sections:
            yield f"{section}: the guest did not get there"
        for what, pattern, wanted in checks:
            if section in sections and bool(re.search(pattern, sections[section])) != wanted:
                yield f"{section}: {what}: not so"


def main():
    chosen = [g for g in GUESTS if len(sys.argv) < 2 or any(g.name.startswith(word) for word in sys.argv[1:])]
    if not chosen:
        sys.exit(f"no such guest; there are {', '.join(g.name for g in GUESTS)}")
    got, image = prepare()
    failed = 0
    for guest in chosen:
        start = time.monotonic()
        found = result(guest, got, image)
        failed += len(found)
        print(f"{guest.name:17} {time.monotonic() - start:3.0f} s  {'ok' if not found else 'FAULTS'}", flush=True)
        for fault in found:
            print(f"  FAULT {fault}", flush=True)
    if failed:
        print(f"{failed} faults; the guests' output is in {CACHE.relative_to(ROOT)}/*.log")
    sys.exit(failed > 0)


main()
