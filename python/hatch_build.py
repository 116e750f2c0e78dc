"""Puts the program into the wheel, if there is one.

It is the file that NETLATHE names, else what cargo built beside this folder, release before debug. The wheel then fits
this kind of machine only. Without a program the wheel is for any machine, and the package finds netlathe on PATH.
NETLATHE_WHEEL_TAG names other platforms, for a static program: manylinux2014_x86_64.musllinux_1_1_x86_64.
"""

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CarryProgram(BuildHookInterface):  # type: ignore[type-arg,misc,unused-ignore]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = self._program()
        if program is None or version == "editable":
            return
        platform = os.environ.get("NETLATHE_WHEEL_TAG") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(program)] = "netlathe/bin/netlathe"

    def _program(self) -> Path | None:
        named = os.environ.get("NETLATHE")
        if named:
            if not os.access(named, os.X_OK):
                raise FileNotFoundError(f"NETLATHE names {named}, which is not a program: correct it, or unset it")
            return Path(named)
        target = Path(os.environ.get("CARGO_TARGET_DIR") or Path(self.root).parent / "target")
        built = [target / profile / "netlathe" for profile in ("release", "debug")]
        return next((path for path in built if os.access(path, os.X_OK)), None)
