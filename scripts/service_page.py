#!/usr/bin/env python3
"""Clicks through the page of `netlathe serve` in headless Chromium, by its debugging protocol.

It gives the token, reads the figures of a live run, changes the rate by mouse and by keyboard and reads the figure that follows,
looks at a width of 320 px and at both colour schemes, ends the run and opens the drawn report and its JSON. NETLATHE is the program. With a folder
as argument it writes pictures there. It wants chromium (Debian's package).
"""

import base64
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

SCENARIO = """schema = 1
duration = "60s"
[[pipeline]]
name = "down"
stream = ["udp 10.0.0.1:1 > 10.0.0.2:9 size 64B"]
out = "dpdk:net_null0"
rate = "10Mbps"
"""


class Browser:
    """A page, driven by pipes: commands go in by descriptor 3, answers come out by 4."""

    def __init__(self, folder, url):
        theirs, self.commands = os.pipe()
        self.answers, ours = os.pipe()

        def descriptors():
            # First move both away from 3 and 4, so that neither overwrites the other.
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs, ours)]
            for end, number in zip(ends, (3, 4)):
                os.dup2(end, number)

        line = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                f"--user-data-dir={folder}/browser", "about:blank"]
        self.process = subprocess.Popen(line, preexec_fn=descriptors, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(ours)
        self.read, self.number, self.session = b"", 0, None
        target = self.call("Target.createTarget", url=url)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        # Without this, a page without a window has no focus.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while True:
            while b"\0" in self.read:
                text, _, self.read = self.read.partition(b"\0")
                answer = json.loads(text)
                if answer.get("id") == self.number:
                    if "error" in answer:
                        raise SystemExit(f"{method}: {answer['error']}")
                    return answer["result"]
            self.read += os.read(self.answers, 1 << 16)

    def run(self, script):
        return self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"].get("value")

    def wait(self, what, script):
        for _ in range(150):
            found = self.run(script)
            if found:
                return found
            time.sleep(0.1)
        raise SystemExit(f"waited in vain for {what}; the page shows: {self.run('document.body.innerText')}")

    def click(self, text):
        self.run(f"[...document.querySelectorAll('button')].find((button) => button.textContent === {json.dumps(text)}).click()")

    def type(self, text):
        """Types into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def focused(self):
        return self.run("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent")

    def picture(self, path, width, height, scheme="light"):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        if path:
            path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


# Waits until the rate that the page shows, in Mbps, is between these bounds.
AROUND = """(() => {{
    const [number, unit] = (document.querySelector('td:nth-child(4)')?.textContent ?? '').split(' ');
    const rate = number * {{ bps: 1e-6, kbps: 1e-3, Mbps: 1, Gbps: 1e3 }}[unit];
    return rate >= {at_least} && rate <= {at_most} ? rate : 0;
}})()"""
PICTURES = [("service-light.png", 900, 470, "light"), ("service-dark.png", 900, 470, "dark"), ("service-phone.png", 320, 680, "light")]


def main():
    if not shutil.which("chromium"):
        print("SKIP: there is no chromium: apt-get install --no-install-recommends chromium")
        return
    pictures = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    program = pathlib.Path(os.environ.get("NETLATHE", "target/debug/netlathe")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        token = pathlib.Path(folder, "token")
        line = [program, "serve", "--listen", "127.0.0.1:0", "--token", token, "--allow-changes"]
        service = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        browser = None
        try:
            said = iter(service.stderr.readline, "")
            url = "http://" + next(line for line in said if "listening on " in line).split()[-1]
            secret = token.read_text().strip()
            headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/toml"}
            urllib.request.urlopen(urllib.request.Request(f"{url}/v1/runs?start-at=+5s", SCENARIO.encode(), headers)).close()
            browser = Browser(folder, url)
            browser.wait("the question for the token", "!document.getElementById('login').hidden")
            browser.run(f"document.getElementById('token').value = {json.dumps(secret)}")
            browser.click("Show the runs")
            browser.wait("the asked start", "document.querySelector('section .note').innerText.includes('first departure asked at 20')")
            before = browser.wait("the rate of the scenario", AROUND.format(at_least=9, at_most=11))
            time.sleep(3)
            fields = "document.querySelectorAll('section form input')"
            browser.run(f"{fields}[0].value = 'down.rate'; {fields}[1].value = '5Mbps'")
            browser.click("Change")
            half = browser.wait("half the rate", AROUND.format(at_least=4.5, at_most=5.5))
            browser.wait("the rate asked", "document.querySelector('td:nth-child(5)').textContent === '5Mbps'")
            browser.wait("the client's name", "document.querySelector('section .note').innerText.includes('down.rate = 5Mbps at')")
            # The same by keyboard only. Focusing the field lists the settings of the run.
            browser.run(f"{fields}[0].value = ''; {fields}[1].value = ''; {fields}[0].focus()")
            browser.wait("the settings", "[...document.querySelectorAll('datalist option')].some((option) => option.value === 'down.rate')")
            browser.type("down.rate")
            browser.press("Tab", 9)
            assert browser.focused() == "New value", browser.focused()
            browser.type("8Mbps")
            browser.press("Enter", 13)
            last = browser.wait("the rate that was typed", AROUND.format(at_least=7.2, at_most=8.8))
            browser.run(f"{fields}[0].value = 'down.rat'")
            browser.click("Change")
            browser.wait("the remedy", "document.querySelector('section .note').innerText.includes('did you mean down.rate')")
            browser.run(f"{fields}[0].value = 'down.rate'")
            browser.click("Change")
            browser.wait("an answer", "document.querySelector('section .note').innerText.includes('8Mbps at')")
            marks = browser.run("document.querySelectorAll('svg line').length")
            assert marks >= 2, f"{marks} changes are marked"
            for name, width, height, scheme in PICTURES:
                browser.picture(pictures and pictures / name, width, height, scheme)
                shown = browser.run("document.documentElement.scrollWidth")
                assert shown <= width, f"the page is {shown} px wide in a window of {width}"
                cut = browser.run(f"[...document.querySelectorAll('td, h2, p, button, input')].filter((part) => "
                                  f"part.offsetParent && part.getBoundingClientRect().right > {width}).length")
                assert cut == 0, f"{cut} parts are cut off in a window of {width} px"
            browser.click("End the run")
            browser.wait("the end", "document.querySelector('h2').innerText.includes('ended')")
            browser.click("Open the report")
            browser.wait("the drawn report", "document.querySelector('h1, h2') && document.querySelectorAll('svg').length > 0 && !document.getElementById('runs')")
            text = browser.run("document.body.textContent")
            assert "down" in text and "8Mbps" in text, text
            browser.run("history.back()")
            browser.wait("the question for the token", "!document.getElementById('login').hidden")
            browser.run(f"document.getElementById('token').value = {json.dumps(secret)}")
            browser.click("Show the runs")
            browser.wait("the run that has ended", "document.querySelector('h2')?.innerText.includes('ended')")
            browser.click("Report as JSON")
            browser.wait("the report as JSON", "document.body.innerText.includes('\"command\": \"run\"')")
            print(f"ok: {before} Mbps, then {half} Mbps by mouse, then {last} Mbps by keyboard")
        finally:
            if browser:
                browser.process.kill()
                browser.process.wait()
            service.terminate()
            service.wait()


main()
