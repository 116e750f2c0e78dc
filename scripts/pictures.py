#!/usr/bin/env python3
"""The pictures of pages in docs/images: makes the runs that they show, and has a browser draw the pages.

The picture of virtual time is always the same, except for the date and the machine. The live one shows five seconds of
departures into a port that discards everything. During one of these seconds, loops occupy every CPU, so that frames are late.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from inlab import ROOT, Failed, binary, ended, guarded, run, start, stop, text

IMAGES = os.path.join(ROOT, "docs", "images")
WIDTH = 1100
DARK, LIGHT = 0, 1           # of Chromium's preferredColorScheme
STREAM = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size "
CAPTURE = ["--count", "100000", "--seed", "7", "--stream", STREAM + "random 64B-1518B"]
CALM_S, TROUBLE_S = 2.5, 1.0


def tool(name):
    """Returns the path of a program that only the pictures need."""
    path = shutil.which(name)
    if not path:
        raise Failed(f"{name} is missing, which only the pictures need: as root, "
                     f"apt-get install --yes --no-install-recommends {name} (chromium takes 300 MB and more)")
    return path


def picture(name, scheme, height):
    """Draws the page of `results` down to `height`."""
    browser = [tool("chromium"), "--headless", "--hide-scrollbars", "--disable-gpu", "--user-data-dir=browser",
               # A page needs no network, and the browser gets none.
               "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
               f"--blink-settings=preferredColorScheme={scheme}", "--force-device-scale-factor=1",
               f"--window-size={WIDTH},{height}", "--screenshot=all-colours.png"]
    if os.geteuid() == 0:
        browser.append("--no-sandbox")   # it starts as root only so; the page is our own
    run([*browser, f"file://{os.path.abspath('results/report.html')}"], wait_s=60)
    reduced(name, "all-colours.png")


def virtual():
    run([binary(), "gen", "--out", "pcap:in.pcap", *CAPTURE])
    run([binary(), "shape", "--in", "pcap:in.pcap", "--out", "wire:10G", "--rate", "5Gbps", "--report", "results"])
    picture("report-light.png", LIGHT, 1300)
    picture("report-dark.png", DARK, 1300)


def live():
    line = [binary(), "gen", "--out", "dpdk:net_null0", "--stream", STREAM + "imix", "--gap", "100us",
            "--duration", "5s", "--report", "results"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind("")      # a name of the kernel's choice
        ready.settimeout(20)
        told = {**os.environ, "NOTIFY_SOCKET": ready.getsockname().replace(b"\0", b"@").decode()}
        gen = start(line, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            ready.recv(64)
        except TimeoutError:
            stop(gen)
            raise Failed(f"`{text(line)}` sent nothing for 20 s") from None
    time.sleep(CALM_S)
    loops = [start(["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count())]
    time.sleep(TROUBLE_S)
    for loop in loops:
        stop(loop)
    ended(gen, line, 20)
    picture("report-live.png", LIGHT, 1320)


def service():
    """Takes pictures of the page of `netlathe serve`, by the test that clicks through it."""
    clicks = os.path.join(ROOT, "scripts", "service_page.py")
    run(["env", f"NETLATHE={binary()}", sys.executable, clicks, "."], wait_s=120)
    for name in ("service-light.png", "service-dark.png", "service-phone.png"):
        reduced(name, name)


def reduced(name, picture):
    """Reduces a picture to a PNG of at most 256 colours, a third of its size."""
    path = os.path.join(IMAGES, name)
    run([tool("pngquant"), "--force", "--strip", "--speed", "1", "--output", path, "256", picture])
    print(f"{os.path.relpath(path)}: {os.path.getsize(path) // 1000} kB", flush=True)


def pictures():
    for name in ["chromium", "pngquant"]:
        tool(name)
    with tempfile.TemporaryDirectory(prefix="netlathe-pictures-") as folder:
        os.chdir(folder)
        virtual()
        live()
        service()


sys.exit(guarded("pictures", pictures))
