"""Runs that are changed and watched while they run."""

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import netlathe
import netlathe.aio
from netlathe import Lab, Refused

LINK: dict[str, Any] = {"between": ("c0", "s0"), "both": "delay 10ms"}
SCENARIO = """schema = 1
duration = "60s"
[[pipeline]]
name = "down"
in = "s0"
out = "c0"
rate = "100Mbps"
stages = ["delay 10ms"]
"""
PING = ["ping", "-c", "5", "-i", "0.2", "10.77.0.100"]
FRAMES: dict[str, Any] = {"out": "null", "stream": "udp 10.0.0.1:1 > 10.0.0.2:9", "rate": "1Gbps"}


def test_settings_change_while_frames_pass(netlathe_lab: Lab) -> None:
    with netlathe_lab.box.emulate(**LINK) as r:
        # The run is still starting, so this waits.
        change = r.set("forward.delay", "30ms")
        assert change.number == 1 and change.at >= 0
        r.ready()
        assert " 0% packet loss" in netlathe_lab.client.call(PING).stdout
        assert r.settings()["forward.delay"].startswith("30ms")
        # Frames held at the change have departed, because their delay was 10 ms.
        assert r.set("forward.loss", "0%").number == 2
        assert " 0% packet loss" in netlathe_lab.client.call(PING).stdout
        both = r.set({"forward.delay": "1ms", "backward.delay": "2ms"}, at=60.0)
        assert (both.number, both.at) == (3, 60.0)
        r.stop()
    changes = r.report.forward.changes
    wanted = [("forward.delay", "30ms"), ("forward.loss", "0%"), ("forward.delay", "1ms")]
    assert [(change.path, change.value) for change in changes] == wanted
    assert all(change.took_effect_at >= change.asked_at for change in changes[:2]) and "took_effect_at_ns" not in changes[2]
    # A frame held at a change keeps its delay and counts in the segment of its departure. So a frame that waited 10 ms may be the
    # first of the next segment, but none waits for less, and those that came after the change have the new delay.
    held, after = r.report.forward.segments[-2:]
    assert held.delay.min >= 0.01 and held.delay.max >= 0.03
    assert after.delay.min >= 0.03 and after.out.frames >= 5
    with pytest.raises(Refused, match="ended"):
        r.set("forward.delay", "5ms")


def test_a_scenario_is_changed_as_it_runs(netlathe_lab: Lab) -> None:
    with netlathe_lab.box.run(SCENARIO) as r:
        assert r._control is not None
        folder = r._control.path.parent
        r.set("down.rate", "20Mbps")
        r.ready()
        assert folder.stat().st_mode & 0o777 == 0o700 and r._control.path.stat().st_mode & 0o777 == 0o600
        r.set("down.delay", "40ms")
        assert " 0% packet loss" in netlathe_lab.client.call(PING).stdout
        r.stop()
    assert [(change.path, change.value) for change in r.report.down.changes] == [("down.rate", "20Mbps"), ("down.delay", "40ms")]
    last = r.report.down.segments[-1]
    assert last.delay.min >= 0.01 and last.delay.max >= 0.04 and last.delay.mean > 0.02
    assert not folder.exists()


def test_wrong_changes_are_refused_with_a_remedy(netlathe_lab: Lab) -> None:
    with netlathe_lab.box.emulate(**LINK) as r:
        with pytest.raises(Refused, match="did you mean forward.delay"):
            r.set("forward.dela", "1ms")
        with pytest.raises(Refused, match="forward.delay: .*unit"):
            r.set("forward.delay", "1")
    assert "changes" not in r.report.forward


def test_events_have_changes_pauses_and_the_end(netlathe_lab: Lab) -> None:
    with netlathe_lab.box.emulate(**LINK) as r:
        r.ready()
        seen: list[str] = []
        for event in r.events():
            if not seen:
                r.pause()
                r.resume()
                r.set("backward.loss", "5%")
            seen.append(event.event)
            if seen.count("change") == 3:
                break
        # Another reader gets all events up to the end.
        ends = r.events()
        assert next(ends).event == "progress"
        r._interrupt()
        assert [event.event for event in ends][-1] == "end"


def test_the_same_for_asyncio(netlathe_lab: Lab) -> None:
    async def main() -> netlathe.Report:
        async with netlathe.aio.Run(netlathe_lab.box.emulate(**LINK)) as r:
            assert (await r.set("forward.delay", "30ms")).number == 1
            await r.ready()
            await r.pause()
            await r.resume()
            assert "forward.loss" in await r.settings()
            with pytest.raises(Refused, match="did you mean"):
                await r.set("forward.dela", "1ms")
            seen: list[str] = []
            async for event in r.events():
                if not seen:
                    number = (await r.set("forward.delay", "20ms")).number
                seen.append(event.event)
                if event.event == "change" and event.data.change.number == number:
                    assert event.data.change.set["forward.delay"] == "20ms"
                    r.sync._interrupt()
            assert seen[-1] == "end"
            return await r.wait()

    report = asyncio.run(main())
    assert [change.value for change in report.forward.changes if change.path == "forward.delay"] == ["30ms", "20ms"]


def test_virtual_time_has_events_and_takes_no_changes() -> None:
    with netlathe.gen(**FRAMES, count=10**9, control=True) as r:
        assert [event.event for event in islice(r.events(), 2)] == ["progress", "progress"]
        assert r.settings() == {}
        with pytest.raises(Refused, match="timeline"):
            r.set("gen.rate", "2Gbps")
    assert r.report.gen.out.frames < 10**9


def test_a_run_without_control_says_how_to_get_it(tmp_path: Path) -> None:
    scenario = {"schema": 1, "pipeline": [{"name": "a", "count": 10, **FRAMES}]}
    sweep = f'''{netlathe.to_toml(scenario)}
[sweep]
"a.rate" = ["1Gbps", "2Gbps"]
'''
    path = tmp_path / "sweep.toml"
    path.write_text(sweep)
    runs = [
        netlathe.gen(**FRAMES, count=10),
        netlathe.run(scenario, control=False),
        netlathe.run(scenario, cores="0"),
        netlathe.run(path),
        netlathe.run(sweep),
    ]
    for r in runs:
        with pytest.raises(ValueError, match="control=True"):
            r.set("gen.rate", "2Gbps")
        with pytest.raises(ValueError, match="control=True"):
            next(r.events())
        r.wait()
    with pytest.raises(Refused, match="--control: it is for one run"):
        netlathe.run(path, control=True).wait()
    with netlathe.run(scenario) as r:
        r.wait()
        with pytest.raises(Refused, match="ended"):
            r.set("a.rate", "2Gbps")


def test_values_are_texts_with_units() -> None:
    with netlathe.gen(**FRAMES, count=10, control=True) as r:
        for wrong in (("gen.rate", 5), ("gen.rate", None), ({"gen.rate": "5Mbps"}, "5Mbps")):
            with pytest.raises(TypeError):
                r.set(*wrong)
        r.wait()
