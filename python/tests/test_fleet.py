"""Fleets: placement, wardens, clocks that disagree, and hosts that go away."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netlathe
from netlathe import fleet
from netlathe.fleet import _agent, _task_folder

SOURCES = str(Path(netlathe.__file__).parents[1])
CALM: dict[str, Any] = {"max_clock_error_s": None, "progress": lambda phase, states: None}


def warden(folder: Path, lease_s: float, *words: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "netlathe.fleet._warden", str(lease_s), str(lease_s), str(folder), "--"]
    return subprocess.Popen([*line, *words], stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": SOURCES})


def child_of(process: subprocess.Popen[bytes]) -> int:
    for _ in range(200):
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if found:
            return int(found[0])
        time.sleep(0.05)
    raise AssertionError("the warden has started nothing")


def is_gone(pid: int, patience_s: float = 15.0) -> bool:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("Z"):
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def wait_for_status(task: Path) -> int:
    for _ in range(400):
        if (task / _task_folder.STATUS).exists():
            return int((task / _task_folder.STATUS).read_text())
        time.sleep(0.05)
    raise AssertionError("the program has not ended")


@pytest.mark.parametrize("how", ["lease", "eof", "stop", "kill"])
def test_a_warden_ends_its_program(tmp_path: Path, how: str) -> None:
    task = tmp_path / "task"
    task.mkdir()
    process = warden(task, 0.5 if how == "lease" else 60.0, "sleep", "300")
    pid = child_of(process)
    assert process.stdin
    if how == "eof":
        process.stdin.close()
    elif how == "stop":
        process.stdin.write(b"stop\n")
        process.stdin.flush()
    elif how == "kill":
        process.kill()
    assert is_gone(pid)
    if how == "stop":
        # The output of the program is kept until the agent has read it.
        assert wait_for_status(task) == 128 + signal.SIGINT
        process.stdin.close()
    process.wait(20)
    assert (process.returncode == _task_folder.LEASE_ENDED) == (how == "lease")
    # A killed warden removes nothing, so its agent must.
    assert task.exists() == (how == "kill")


def test_a_renewed_lease_keeps_the_program(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.mkdir()
    process = warden(task, 1.0, "sleep", "300")
    pid = child_of(process)
    assert process.stdin
    for _ in range(8):
        process.stdin.write(b"renew\n")
        process.stdin.flush()
        time.sleep(0.4)
        assert process.poll() is None
    process.stdin.close()
    assert is_gone(pid)
    process.wait(20)


def test_a_warden_passes_the_start_on(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.mkdir()
    process = warden(task, 20.0, "sh", "-c", "read line; echo got $line")
    assert process.stdin
    process.stdin.write(b"start 2026-11-25T18:00:00.000000001Z\n")
    process.stdin.flush()
    assert wait_for_status(task) == 0
    assert (task / "stdout").read_text() == "got 2026-11-25T18:00:00.000000001Z\n"
    process.stdin.close()
    assert process.wait(20) == 0 and not task.exists()


AGENT = """
import os, sys
from netlathe.fleet import _agent
_agent.program = lambda: sys.argv[1]
_agent.arm(_agent.Task("1", "a", "r", ("300",)))
running = _agent._tasks["1"]
print(running.folder, running.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", ["agent", "both"])
def test_the_folder_of_a_killed_agent_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str) -> None:
    patient = tmp_path / "patient"
    patient.write_text("#!/bin/sh\nexec sleep 300\n")
    patient.chmod(0o755)
    place = tmp_path / "tmp"
    place.mkdir()
    env = {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(place)}
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
    agents = [subprocess.Popen([sys.executable, "-c", AGENT, str(patient)], **options) for _ in range(2)]
    said = [agent.stdout.readline().split() for agent in agents if agent.stdout]
    (dead, warden_pid), (kept, other_pid) = [(Path(folder), int(pid)) for folder, pid in said]
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with _task_folder.made():
        assert dead.exists() and kept.exists(), "both are in use"
    if killed == "both":
        os.kill(warden_pid, signal.SIGKILL)
    agents[0].kill()
    agents[0].wait()
    assert is_gone(warden_pid)
    # The warden removes the folder. If it was killed too, the next agent does.
    assert dead.exists() == (killed == "both")
    if killed == "both":
        with _task_folder.made() as (folder, _):
            assert not dead.exists() and folder.exists()
    assert list(place.iterdir()) == [kept], "that of the other agent stays"
    agents[1].communicate()
    assert is_gone(other_pid) and list(place.iterdir()) == []


MAKER = """
import os
from netlathe.fleet import _task_folder
for _ in range(200):
    with _task_folder.made() as (folder, _):
        (folder / "file").write_text("x")
        assert os.listdir(folder) == ["file"], folder
"""


def test_processes_that_make_folders_at_once_take_none_of_each_other(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(tmp_path)}
    makers = [subprocess.Popen([sys.executable, "-c", MAKER], env=env) for _ in range(6)]
    assert [maker.wait(120) for maker in makers] == [0] * 6
    assert list(tmp_path.iterdir()) == []


def test_an_agent_that_cannot_start_its_program_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        _agent.arm(_agent.Task("1", "a", "r", ("gen",)))
    assert list(tmp_path.iterdir()) == [] and _agent._tasks == {}


CONTROLLER = """
from netlathe import fleet
scenario = fleet.Scenario([fleet.Phase("run", [fleet.Role("agent", 1)], 300)], max_clock_error_s=1.0, clock_s=0.5, lease_s=60)
fleet.run(scenario, fleet.Threads(["a"]), progress=lambda phase, states: print(phase, flush=True))
"""


def test_the_reference_clock_ends_with_a_controller_that_is_killed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", CONTROLLER], stdout=subprocess.PIPE, env=env) as controller:
        assert controller.stdout and controller.stdout.readline() == b"run\n"
        warden_pid = child_of(controller)
        clock_pid = int(Path(f"/proc/{warden_pid}/task/{warden_pid}/children").read_text())
        assert b"--answer" in Path(f"/proc/{clock_pid}/cmdline").read_bytes() and len(list(tmp_path.iterdir())) == 1
        controller.kill()
    assert is_gone(clock_pid) and is_gone(warden_pid)
    assert list(tmp_path.iterdir()) == []


def test_instants_are_written_with_all_digits() -> None:
    assert _agent.rfc3339(1_795_629_600_000_000_042) == "2026-11-25T18:00:00.000000042Z"


def scenario(*roles: fleet.Role, duration_s: float = 0.5, **options: Any) -> fleet.Scenario:
    options = {"max_clock_error_s": None, "start_in_s": 0.3, **options}
    return fleet.Scenario([fleet.Phase("run", list(roles), duration_s)], **options)


def test_roles_are_placed_by_name_and_by_number() -> None:
    engine = fleet.Threads(["a", "b", "c", "d"])
    counted, named = fleet.Role("counted", 2), fleet.Role("named", ["b"])
    result = fleet.run(scenario(counted, named), engine, progress=lambda phase, states: None)
    assert [(host.role, host.host) for host in result.hosts] == [("named", "b"), ("counted", "a"), ("counted", "c")]
    assert result.missing == []
    merged = result.merged["run", "counted"]
    assert [host["name"] for host in merged["merged"]["hosts"]] == ["a", "c"]
    assert result.report("counted").counted.out.frames == 2
    for roles, why in [
        ((fleet.Role("many", 5),), "it needs 5 hosts and 4 of 4 are free"),
        ((fleet.Role("named", ["x"]),), "there is no free host x: the engine has a, b, c, d"),
    ]:
        with pytest.raises(netlathe.Refused, match=why):
            fleet.run(scenario(*roles), engine)


def test_a_program_that_is_refused_ends_the_fleet_before_it_starts() -> None:
    role = fleet.Role("sender", 2, ["gen", "--out", "nowhere0", "--stream", "udp 10.0.0.{index}:1 > 10.0.0.9:9"])
    with pytest.raises(netlathe.Refused, match=r"(?s)a, role sender: .*nowhere0.*\nb, role sender"):
        fleet.run(scenario(role, arm_s=30), fleet.Threads(["a", "b"]), progress=lambda phase, states: None)
    assert _agent._tasks == {}


PROGRAMS = """
schema = 1
until = "here"

[[program]]
name = "here"
command = "echo {role} {index} on {host} > {folder}/{host}; sleep 0.3"

[[pipeline]]
name = "traffic"
stream = "udp 10.0.0.{index}:1 > 10.0.9.1:9"
out = "dpdk:net_null0"
rate = "1kpps"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="ports of DPDK want root here")
def test_a_role_is_a_scenario_with_programs(tmp_path: Path) -> None:
    folder = {host: {"folder": str(tmp_path)} for host in ("a", "b")}
    role = fleet.Role("client", 2, ["run", "role.toml"], files={"role.toml": PROGRAMS}, variables=folder)
    result = fleet.run(
        scenario(role, duration_s=20, arm_s=60, lease_s=20, start_in_s=2), fleet.Threads(["a", "b"]), progress=lambda phase, states: None
    )
    assert result.missing == []
    assert (tmp_path / "b").read_text() == "client 2 on b\n"
    assert result.report("client").traffic.out.frames > 0
    assert result.merged["run", "client"]["pipelines"][0]["hosts"] == ["a", "b"]
    assert not Path("role.toml").exists()
    with pytest.raises(netlathe.Refused, match="'../x' is no name of a file"):
        fleet.run(scenario(fleet.Role("client", 1, ["run", "x"], files={"../x": ""})), fleet.Threads(["a"]))


def test_roles_start_before_and_after_the_instant_and_followers_end_last() -> None:
    engine = fleet.Threads(["a", "b", "c"])
    early = fleet.Role("early", ["a"], start_after_s=-0.2, follows=True)
    late = fleet.Role("late", ["c"], start_after_s=0.4)
    result = fleet.run(scenario(early, fleet.Role("sender", ["b"]), late, duration_s=1), engine, progress=lambda phase, states: None)
    asked = {host.role: (host.report or {})["pipelines"][0]["start"]["asked_unix_ns"] for host in result.hosts}
    assert (asked["sender"] - asked["early"], asked["late"] - asked["sender"]) == (200_000_000, 400_000_000)


def test_one_silent_host_does_not_cost_the_others_their_leases() -> None:
    class Silent(fleet.Threads):
        """Host b stops answering once it runs."""

        looks: list[float] = []

        def call(self, calls: Any, timeout_s: float) -> list[Any]:
            if calls and calls[0][1] is _agent.look:
                self.looks.append(time.monotonic())
                others = [call for call in calls if call[0] != "b"]
                time.sleep(timeout_s)
                found = iter(super().call(others, 5.0))
                return [fleet.Lost("no answer in time") if host == "b" else next(found) for host, _, _ in calls]
            return super().call(calls, timeout_s)

    engine = Silent(["a", "b", "c"])
    keep = scenario(fleet.Role("agent", 3), duration_s=3, lease_s=1.0, on_loss="go-on")
    result = fleet.run(keep, engine, progress=lambda phase, states: None)
    assert [host.host for host in result.missing] == ["b"]
    longest = max(b - a for a, b in zip(engine.looks, engine.looks[1:]))
    assert longest < 1.0, "the others are looked at within their lease"


def test_a_host_that_is_slow_to_end_is_asked_again() -> None:
    class Slow(fleet.Threads):
        """Host b does not get the first call that ends it."""

        stops: list[str] = []

        def call(self, calls: Any, timeout_s: float) -> list[Any]:
            if calls and calls[0][1] is _agent.stop:
                first = not self.stops
                self.stops += [host for host, _, _ in calls]
                if first:
                    others = iter(super().call([call for call in calls if call[0] != "b"], timeout_s))
                    return [fleet.Lost("no answer in time") if host == "b" else next(others) for host, _, _ in calls]
            return super().call(calls, timeout_s)

    engine = Slow(["a", "b", "c"])
    command = [*"gen --out dpdk:net_null0 --rate 100pps --duration 30s --stream".split(), "udp 10.0.0.1:1 > 10.0.0.2:9"]
    result = fleet.run(scenario(fleet.Role("sender", 3, command), duration_s=0.5, start_in_s=3), engine, progress=lambda phase, states: None)
    assert result.missing == [], [host.missing for host in result.missing]
    assert engine.stops == ["a", "b", "c", "b"]


@pytest.mark.parametrize("arms", ["before", "after"])
def test_ctrl_c_while_programs_arm_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arms: str) -> None:
    class Interrupted(fleet.Threads):
        """Ctrl-C arrives during the calls that arm, before or after they have reached the hosts."""

        def call(self, calls: Any, timeout_s: float) -> list[Any]:
            if calls and calls[0][1] is _agent.arm:
                self.arming = calls
                if arms == "before":
                    super().call(calls, timeout_s)
                raise KeyboardInterrupt
            return super().call(calls, timeout_s)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_agent, "program", lambda: "sleep")
    monkeypatch.setattr(_agent, "_tasks", {})
    engine = Interrupted(["a", "b"])
    with pytest.raises(KeyboardInterrupt):
        fleet.run(scenario(fleet.Role("sender", 2, ["300"])), engine, progress=lambda phase, states: None)
    if arms == "after":
        late = fleet.Threads(["a", "b"]).call(engine.arming, 30.0)
        assert all("interrupted" in str(answer) for answer in late), late
    assert _agent._tasks == {} and list(tmp_path.iterdir()) == []


def test_a_scheduler_that_is_lost_in_a_call_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    class Cancelled:
        status = "cancelled"

    class Client:
        status = "running"

        def scheduler_info(self, n_workers: int) -> Any:
            return {"workers": {"tcp://10.0.0.1:1": {"name": "one"}}}

        def submit(self, *_: Any, **__: Any) -> Any:
            return Cancelled()

    # Releases of Dask differ in how they end the wait.
    for error in (concurrent.futures.CancelledError(), asyncio.CancelledError()):

        def wait(futures: Any, timeout: float, error: BaseException = error) -> None:
            Client.status = "connecting"
            raise error

        monkeypatch.setattr(Client, "status", "running")
        monkeypatch.setattr(distributed, "Client", Client)
        monkeypatch.setattr(distributed, "wait", wait)
        engine = fleet.Dask(Client())
        assert engine.hosts() == ["one"]
        (answer,) = engine.call([("one", time.time, ())], 1.0)
        assert isinstance(answer, fleet.Lost) and str(answer) == "the scheduler is gone"


def test_agents_on_ray() -> None:
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster()
    engine = None
    try:
        for name in ("a", "b", "c"):
            cluster.add_node(num_cpus=1, node_name=name)
        engine = fleet.Ray(cluster.address)
        assert engine.hosts() == ["a", "b", "c"]
        keep = scenario(fleet.Role("agent", 3), start_in_s=5, lease_s=20)
        result = fleet.run(keep, engine, progress=lambda phase, states: None)
        assert result.missing == [] and result.report("agent").agent.out.frames == 3
        assert isinstance(engine.call([("x", time.time, ())], 1.0)[0], fleet.Lost)
        raised = engine.call([("a", _agent.go, ("none", 0))], 10.0)[0]
        assert isinstance(raised, KeyError), raised
    finally:
        if engine is not None:
            engine.close()
        ray.shutdown()
        cluster.shutdown()


def test_a_thousand_agents_on_dask() -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=4, threads_per_worker=4, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        engine = fleet.Dask(client, agents_per_worker=250)
        # All hosts must get the instant before it passes, even on a busy machine.
        keep = scenario(fleet.Role("agent", 1000), duration_s=2, start_in_s=25, lease_s=60)
        result = fleet.run(keep, engine, progress=lambda phase, states: None)
    merged = result.merged["run", "agent"]
    assert result.missing == [] and len(merged["merged"]["hosts"]) == 1000
    assert merged["pipelines"][0]["out"]["frames"] == 1000
    assert sum(count for _, count in merged["pipelines"][0]["lateness"]["histogram"]) == 1000
    print(f"1000 agents: {result.took_s:.1f} s, starts within {merged['merged']['start_spread_ns'] / 1e6:.1f} ms")


HOSTS = 6
DRIVER = """
import json, sys
from netlathe import fleet
about = json.loads(sys.argv[1])
role = fleet.Role("client", about["hosts"], about["command"])
offsets = {name: {"NETLATHE_CLOCK_OFFSET": us} for name, us in about["offsets"].items()}
scenario = fleet.Scenario([fleet.Phase("run", [role], about["duration_s"])], clock_environment=offsets, start_in_s=1.5,
                          max_clock_error_s=500e-6, lease_s=3.0, on_loss=about["on_loss"], clock_s=1.0)
def progress(phase, states):
    print("states", json.dumps(states), flush=True)
engine = fleet.Dask(about["scheduler"], timeout_s=60)
engine.client.wait_for_workers(about["hosts"], timeout=60)
result = fleet.run(scenario, engine, progress=progress, folder=about.get("folder"))
print("result", json.dumps({
    "missing": {host.host: host.missing for host in result.missing},
    "clocks": {host.host: host.clock for host in result.hosts},
    "merged": {role: merged for (_, role), merged in result.merged.items()},
}), flush=True)
"""


class Site:
    """Six hosts as namespaces, with a Dask worker each, and a seventh with the scheduler and the controller."""

    def __init__(self, lab: netlathe.Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.head = lab.clients[HOSTS]
        self.scheduler = f"tcp://{self.head.address}:8786"
        env = {**os.environ, "PYTHONPATH": SOURCES, "TMPDIR": str(folder)}
        self.options: dict[str, Any] = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        dask = [sys.executable, "-m"]
        self.scheduling = self.head.start(
            [*dask, "distributed.cli.dask_scheduler", "--host", self.head.address, "--no-dashboard"], **self.options
        )
        worker = ["distributed.cli.dask_worker", self.scheduler, "--nthreads", "4", "--no-nanny", "--no-dashboard"]
        self.workers = [
            node.start([*dask, *worker, "--death-timeout", "30", "--name", f"h{i + 1}"], **self.options)
            for i, node in enumerate(lab.clients[:HOSTS])
        ]

    def drive(self, **about: Any) -> subprocess.Popen[Any]:
        destination = f"{self.head.address}:9 smac 02:77:00:00:00:0{{index}} dmac {self.head.mac}"
        command = ["gen", "--out", "if:eth0,driver=af_packet", "--rate", "20pps", "--count", "20"]
        about = {
            "hosts": HOSTS,
            "command": [*command, "--stream", f"udp 10.77.0.{{index}}:1000 > {destination}"],
            "offsets": {},
            "duration_s": 4,
            "on_loss": "end",
            "scheduler": self.scheduler,
            **about,
        }
        options = {**self.options, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return self.head.start([sys.executable, "-c", DRIVER, json.dumps(about)], **options)

    def programs(self) -> list[int]:
        """The processes of netlathe and its wardens in the hosts of the lab."""
        found = []
        for host in self.lab.clients[:HOSTS]:
            name = f"nl-{self.lab.name}-{host.name}"
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                except FileNotFoundError:
                    continue
                if b"--start-at" in line or b"netlathe.fleet._warden" in line:
                    found.append(int(pid))
        return found

    def folders(self) -> list[Path]:
        """The folders of tasks, of all hosts."""
        return list(self.folder.glob("netlathe-fleet-*"))


def result_of(process: subprocess.Popen[Any], patience_s: float = 120) -> dict[str, Any]:
    out, err = process.communicate(timeout=patience_s)
    lines = [line for line in out.splitlines() if line.startswith("result ")]
    assert lines, f"{out}\n{err}"
    result: dict[str, Any] = json.loads(lines[-1].removeprefix("result "))
    return result


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    pytest.importorskip("distributed")
    if os.geteuid() != 0:
        pytest.skip("labs of an ordinary user hide their namespaces from this test: run it as root")
    try:
        lab = netlathe.lab(clients=HOSTS + 1)
    except netlathe.Refused as refused:
        pytest.skip(f"no lab: {refused.message}")
    with lab:
        yield Site(lab, tmp_path)


def wait_for_state(process: subprocess.Popen[Any], wanted: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if line.startswith("states ") and json.loads(line.removeprefix("states ")).get(wanted):
            return
    raise AssertionError(f"never {wanted}: {process.communicate()}")


def test_six_hosts_whose_clocks_disagree_start_together(site: Site, tmp_path: Path) -> None:
    offsets_us = {"h1": 0, "h2": 250, "h3": -1300, "h4": 40_000, "h5": 777, "h6": -90_000}
    capture = tmp_path / "got.pcap"
    listens = site.head.measure(in_="eth0", write=str(capture), duration="60s")
    listens.ready()
    result = result_of(site.drive(offsets={name: f"{us}us" for name, us in offsets_us.items()}))
    listens.stop()
    assert result["missing"] == {}
    off_us = [abs(result["clocks"][name]["offset_ns"] / 1e3 + us) for name, us in offsets_us.items()]
    first: dict[str, int] = {}
    for frame in netlathe.read_frames(capture):
        if len(frame.data) > 34 and frame.data[12:14] == b"\x08\x00" and frame.data[34:38] == b"\x03\xe8\x00\x09":
            first.setdefault(".".join(map(str, frame.data[26:30])), frame.time_ns)
    assert len(first) == HOSTS
    spread_us = (max(first.values()) - min(first.values())) / 1e3
    merged = result["merged"]["client"]
    print(f"clocks off by {max(off_us):.1f} us, starts within {spread_us:.0f} us at the receiver, "
          f"{merged['merged']['start_spread_ns'] / 1e3:.0f} us by the clocks")
    assert sorted(off_us)[HOSTS // 2] < 20, off_us
    assert merged["pipelines"][0]["out"]["frames"] == 20 * HOSTS
    assert merged["merged"]["clocks_known"] is True
    # A busy machine sometimes starts one late, so only most must start together.
    middle = sorted(first.values())
    assert (middle[HOSTS - 2] - middle[1]) / 1e3 < 5_000, first


@pytest.mark.parametrize("what", ["agent", "host", "link", "scheduler", "controller", "ctrl-c"])
def test_when_one_is_lost_the_others_end_and_nothing_is_left(site: Site, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = site.drive(duration_s=60, command=[
        "gen", "--out", "dpdk:net_null0", "--rate", "10pps", "--stream", "udp 10.77.0.{index}:1 > 10.9.9.9:9",
    ])
    wait_for_state(process, "running")
    # One more process is the reference clock.
    assert site.programs() and len(site.folders()) == HOSTS + 1
    if what == "host":
        # Everything that it started ends with it, including the warden.
        site.workers[2].kill()
    elif what == "agent":
        pid = subprocess.run(
            ["ip", "netns", "pids", f"nl-{site.lab.name}-client3"], capture_output=True, text=True
        ).stdout.split()
        for one in pid:
            line = Path(f"/proc/{one}/cmdline").read_bytes()
            if b"dask_worker" in line and b"lab\0run" not in line:
                os.kill(int(one), signal.SIGKILL)
    elif what == "link":
        site.lab.clients[2].call(["ip", "link", "set", "eth0", "down"])
    elif what == "scheduler":
        for one in subprocess.run(
            ["ip", "netns", "pids", f"nl-{site.lab.name}-client7"], capture_output=True, text=True
        ).stdout.split():
            if b"dask_scheduler" in Path(f"/proc/{one}/cmdline").read_bytes():
                os.kill(int(one), signal.SIGKILL)
    else:
        for one in subprocess.run(
            ["ip", "netns", "pids", f"nl-{site.lab.name}-client7"], capture_output=True, text=True
        ).stdout.split():
            line = Path(f"/proc/{one}/cmdline").read_bytes()
            if b"from netlathe import fleet" in line and not b"lab\0run" in line:
                os.kill(int(one), signal.SIGINT if what == "ctrl-c" else signal.SIGKILL)
    if what == "ctrl-c":
        assert process.wait(60) != 0 and "KeyboardInterrupt" in process.stderr.read()  # type: ignore[union-attr]
        assert site.programs() == [], "Ctrl-C ends all programs before it is raised"
    elif what in ("agent", "host", "link"):
        missing = result_of(process)["missing"]
        assert "lost" in missing["h3"], missing
    elif what == "scheduler":
        missing = result_of(process)["missing"]
        assert len(missing) == HOSTS, missing
    end = time.monotonic() + 30
    if what == "host":
        while len(site.folders()) > 1 and time.monotonic() < end:
            time.sleep(0.2)
        # The next agent of that host does the same.
        monkeypatch.setattr(tempfile, "tempdir", str(site.folder))
        with _task_folder.made():
            pass
    while (site.programs() or site.folders()) and time.monotonic() < end:
        time.sleep(0.2)
    assert site.programs() == [], [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in site.programs()]
    assert site.folders() == []


def test_the_others_go_on_if_they_should(site: Site) -> None:
    process = site.drive(on_loss="go-on", duration_s=60, command=[
        "gen", "--out", "dpdk:net_null0", "--rate", "20pps", "--count", "200", "--stream", "udp 10.77.0.{index}:1 > 10.9.9.9:9",
    ])
    wait_for_state(process, "running")
    site.lab.clients[2].call(["ip", "link", "set", "eth0", "down"])
    result = result_of(process)
    assert list(result["missing"]) == ["h3"], result["missing"]
    merged = result["merged"]["client"]
    assert merged["pipelines"][0]["out"]["frames"] == 200 * (HOSTS - 1)
    assert merged["merged"]["missing"][0]["host"] == "h3"
