"""Runs that are awaited."""

import asyncio
import inspect

import pytest

import netlathe
import netlathe.aio

FRAMES = {"out": "null", "stream": "udp 10.0.0.1:1 > 10.0.0.2:9", "rate": "1Gbps"}


def test_runs_go_on_side_by_side() -> None:
    async def main() -> list[netlathe.Report]:
        runs = [netlathe.aio.gen(**FRAMES, count=1000 + i) for i in range(3)]
        return await asyncio.gather(*(r.wait() for r in runs))

    assert [report.gen.out.frames for report in asyncio.run(main())] == [1000, 1001, 1002]


def test_errors_are_the_same() -> None:
    async def main() -> None:
        await netlathe.aio.gen(out="null").wait()

    with pytest.raises(netlathe.Refused):
        asyncio.run(main())


def test_the_end_of_the_block_stops_the_run_even_when_cancelled() -> None:
    async def main() -> netlathe.aio.Run:
        async with netlathe.aio.gen(**FRAMES, count=10**9) as r:
            with pytest.raises(RuntimeError, match="has not ended"):
                r.report
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(r.wait(), 0.5)
            assert r.running
        return r

    r = asyncio.run(main())
    assert not r.running and 0 < r.report.gen.out.frames < 10**9


def test_every_command_has_a_twin() -> None:
    twins = {name for name in netlathe.aio.__all__ if inspect.isfunction(getattr(netlathe.aio, name))}
    starts = {name for name, f in inspect.getmembers(netlathe.Program, inspect.isfunction) if "-> Run:" in _source(f)}
    assert twins == {name for name in starts if not name.startswith("_")}


def _source(function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return f"-> {signature.return_annotation}:"
