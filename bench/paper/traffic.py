#!/usr/bin/env python3
"""Traffic of unmodified programs: request and response over TCP, and open-loop bursts over UDP. Sockets only.

  traffic.py serve                        answers both kinds of requests, until it is ended
  traffic.py rr|crr HOST SECONDS          asks, one at a time, and prints what it took as JSON
  traffic.py sink                         holds the port that bursts go to
  traffic.py bursts HOST START COUNT      sends COUNT bursts, the first at START on CLOCK_MONOTONIC, in s

RR: requests and responses over one connection. CRR: a connection for each. A message has 128 bytes, both ways.
"""

import json
import math
import socket
import sys
import threading
import time

MESSAGE = bytes(128)
RR_PORT, CRR_PORT, BURST_PORT = 7001, 7002, 2000
PAYLOAD = bytes(958)             # a frame of 1000 bytes without FCS
TICK_S, TICKS, PEAK = 0.001, 80, 40   # a burst is half a sine wave; PEAK is the datagrams per tick at its crest
PERIOD_S = 1.0


def whole(connection):
    """A message, however many pieces it comes in; False at the end of the connection."""
    missing = len(MESSAGE)
    while missing:
        piece = connection.recv(missing)
        if not piece:
            return False
        missing -= len(piece)
    return True


def listener(port):
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("", port))
    listening.listen(64)
    return listening


def answer(listening, only_one):
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while whole(connection):
                    connection.sendall(MESSAGE)
                    if only_one:   # the server ends it, so that no port of the client's has to wait
                        break
            except ConnectionError:
                pass


def serve():
    for port, only_one in ((RR_PORT, False), (CRR_PORT, True)):
        threading.Thread(target=answer, args=(listener(port), only_one), daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


def connected(host, port):
    connection = socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(10)
    connection.connect((host, port))
    return connection


def exchange(connection):
    connection.sendall(MESSAGE)
    if not whole(connection):
        raise ConnectionError("the server ended the connection before it had answered")


def rr(host, until):
    """Time from the first byte of the request to the last of the response, in ns."""
    with connected(host, RR_PORT) as connection:
        while time.monotonic() < until:
            begin = time.perf_counter_ns()
            exchange(connection)
            yield time.perf_counter_ns() - begin


def crr(host, until):
    """Time from the call of connect() to the last byte of the response, in ns."""
    while time.monotonic() < until:
        begin = time.perf_counter_ns()
        with connected(host, CRR_PORT) as connection:
            exchange(connection)
            took = time.perf_counter_ns() - begin
            connection.recv(1)   # the end of the connection, which is not timed
        yield took


def ask(kind, host, seconds):
    begin = time.monotonic()
    took = sorted(kind(host, begin + seconds))
    passed = time.monotonic() - begin
    if not took:
        raise SystemExit("traffic: no transaction ended in time")
    print(json.dumps({
        "transactions": len(took), "per_second": len(took) / passed, "mean_ms": sum(took) / len(took) / 1e6,
        "p50_ms": took[len(took) // 2] / 1e6, "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)] / 1e6,
        "min_ms": took[0] / 1e6, "max_ms": took[-1] / 1e6,
    }))


def sink():
    taking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taking.bind(("", BURST_PORT))
    print("ready", flush=True)
    threading.Event().wait()   # the kernel discards what no program reads


def in_tick(tick):
    """Datagrams in a tick of a burst."""
    return max(1, round(PEAK * math.sin(math.pi * (tick + 0.5) / TICKS)))


def bursts(host, start, count):
    sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sending.connect((host, BURST_PORT))
    sent = 0
    for number in range(count):
        for tick in range(TICKS):
            due = start + number * PERIOD_S + tick * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            for _ in range(in_tick(tick)):
                sending.send(PAYLOAD)
                sent += 1
    print(json.dumps({"sent": sent}))


def main():
    what, *more = sys.argv[1:] or [""]
    if what == "serve":
        serve()
    elif what == "sink":
        sink()
    elif what in ("rr", "crr") and len(more) == 2:
        ask(rr if what == "rr" else crr, more[0], float(more[1]))
    elif what == "bursts" and len(more) == 3:
        bursts(more[0], float(more[1]), int(more[2]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
