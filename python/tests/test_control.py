"""Runs that are changed and watched while they go on."""

import asyncio
from itertools import islice
from typing import Any

import pytest

import netlathe
import netlathe.aio
from netlathe import Lab, Refused

LINK: dict[str, Any] = {"between": ("c0", "s0"), "both": "delay 10ms", "control": True}
FRAMES: dict[str, Any] = {"out": "null", "stream": "udp 10.0.0.1:1 > 10.0.0.2:9", "rate": "1Gbps"}


def test_settings_change_while_frames_pass(netlathe_lab: Lab) -> None:
    with netlathe_lab.box.emulate(**LINK) as r:
        # It is starting: this waits.
        change = r.set("forward.delay", "30ms")
        assert change.number == 1 and change.at >= 0
        r.ready()
        ping = netlathe_lab.client.call(["ping", "-c", "5", "-i", "0.2", netlathe_lab.server.address])
        assert " 0% packet loss" in ping.stdout
        assert r.settings()["forward.delay"].startswith("30ms")
        both = r.set({"forward.delay": "1ms", "backward.delay": "2ms"}, at=60.0)
        assert (both.number, both.at) == (2, 60.0)
        r.stop()
    changes = r.report.forward.changes
    assert [(change.path, change.value) for change in changes] == [("forward.delay", "30ms"), ("forward.delay", "1ms")]
    assert changes[0].took_effect_at >= changes[0].asked_at and "took_effect_at_ns" not in changes[1]
    # A frame that was held across the change has the delay of before.
    assert r.report.forward.segments[1].delay.max >= 0.03
    with pytest.raises(Refused, match="ended"):
        r.set("forward.delay", "5ms")


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
        # What another reader gets to the end.
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


def test_a_run_without_control_says_how_to_get_it() -> None:
    with netlathe.gen(**FRAMES, count=10) as r:
        with pytest.raises(ValueError, match="control=True"):
            r.set("gen.rate", "2Gbps")
        with pytest.raises(ValueError, match="control=True"):
            next(r.events())
        r.wait()


def test_values_are_texts_with_units() -> None:
    with netlathe.gen(**FRAMES, count=10, control=True) as r:
        for wrong in (("gen.rate", 5), ("gen.rate", None), ({"gen.rate": "5Mbps"}, "5Mbps")):
            with pytest.raises(TypeError):
                r.set(*wrong)
        r.wait()
