"""Labs and live runs. The plugin's fixtures skip where this machine does not permit labs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import netlathe
import netlathe.aio
from netlathe import Lab, Link, Refused


@pytest.mark.netlathe_lab(clients=2)
def test_a_lab_has_nodes_with_addresses(netlathe_lab: Lab) -> None:
    assert [node.address for node in netlathe_lab.clients] == ["10.77.0.1", "10.77.0.2"]
    assert netlathe_lab.client is netlathe_lab.clients[0]
    assert (netlathe_lab.server.address, netlathe_lab.server.mac) == ("10.77.0.100", "02:77:00:00:00:64")
    assert "10.77.0.2/24" in netlathe_lab.clients[1].call(["ip", "-br", "address"]).stdout
    with pytest.raises(AttributeError, match="box has no address"):
        netlathe_lab.box.address


def test_programs_start_in_their_folder(netlathe_lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert netlathe_lab.client.call(["pwd"]).stdout.strip() == str(tmp_path)
    assert netlathe_lab.client.call(["pwd"], cwd=tmp_path / "below").stdout.strip() == str(tmp_path / "below")
    with netlathe_lab.server.measure(in_="eth0", write="came.pcap") as r:
        r.ready()
    assert (tmp_path / "came.pcap").exists()


def test_a_link_delays_and_counts(netlathe_link: Callable[..., Link]) -> None:
    link = netlathe_link(forward="delay 20ms", stats_every="100ms")
    ping = link.client.call(["ping", "-c", "5", "-i", "0.1", link.server.address]).stdout
    times = sorted(float(line.partition("time=")[2].split()[0]) for line in ping.splitlines() if "time=" in line)
    assert times[len(times) // 2] >= 20
    now = next(link.run.progress())
    assert now.passed > 0 and not now["last"] and now.pipelines["forward"].name == "forward"
    assert link.report.forward.delay.min >= 0.02
    assert link.report.forward.out.frames >= 5
    *_, last = link.run.progress()
    assert last["last"] and last.pipelines["forward"]["out"] == link.report.forward["out"]


def test_a_link_without_impairment_passes_frames_both_ways(netlathe_link: Callable[..., Link]) -> None:
    link = netlathe_link()
    link.client.call(["ping", "-c", "1", link.server.address])
    assert link.report.forward.out.frames > 0 and link.report.backward.out.frames > 0


def test_programs_end_with_the_lab(netlathe_lab: Lab) -> None:
    with netlathe.lab() as lab:
        sleeper = lab.server.start(["sleep", "1000"])
        name = lab.name
        assert name in netlathe.command("lab", "list") or os.geteuid() != 0
    assert sleeper.poll() is not None
    assert name not in netlathe.command("lab", "list")


def test_ctrl_c_ends_the_block_and_then_the_lab(netlathe_lab: Lab) -> None:
    script = (
        "import netlathe, time\nwith netlathe.lab() as lab:\n"
        " with lab.link() as link:\n  print(lab.name, flush=True)\n  time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        name = process.stdout.readline().strip()
        # Signal all processes of the group, as a terminal does.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert errors.strip().endswith("KeyboardInterrupt"), errors
    assert name not in netlathe.command("lab", "list")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees labs from outside")
def test_the_lab_of_a_killed_python_goes(netlathe_lab: Lab) -> None:
    script = "import netlathe, time; print(netlathe.lab().name, flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        name = process.stdout.readline().strip()
        assert name in netlathe.command("lab", "list")
        process.kill()
    until = time.monotonic() + 30
    while name in netlathe.command("lab", "list"):
        assert time.monotonic() < until, f"{name} is still there"
        time.sleep(0.1)


def test_two_programs_of_netlathe_at_once(netlathe_lab: Lab) -> None:
    with netlathe_lab.link(both="loss 50%"):
        with netlathe_lab.server.measure(in_="eth0", only="udp dport 9") as arrivals:
            arrivals.ready()
            stream = f"udp {netlathe_lab.client.address}:1 > {netlathe_lab.server.address}:9 dmac {netlathe_lab.server.mac}"
            netlathe_lab.client.gen(out="eth0", stream=stream, rate="10kpps", count=1000).wait()
            arrivals.stop()
    assert 300 < arrivals.report.measure.in_.frames < 700


def test_a_lab_that_cannot_be_is_refused(netlathe_lab: Lab) -> None:
    with pytest.raises(Refused, match="99999"):
        netlathe.lab(clients=99999)


def test_the_same_for_asyncio(netlathe_lab: Lab) -> None:
    async def main() -> None:
        emulate = netlathe_lab.box.emulate(between=("c0", "s0"), both="delay 1ms", stats_every="100ms")
        async with netlathe.aio.Run(emulate) as r:
            await r.ready()
            seen = 0
            async for now in r.progress():
                seen += 1
                if seen == 3:
                    break
            assert r.running and now.passed > 0.2
            report = await r.stop()
        assert report.forward.drops.loss == 0 and not r.running

    asyncio.run(main())
