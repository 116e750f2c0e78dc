#!/usr/bin/env python3
"""Sends mutated configurations to a running `netlathe otg`.

Usage: netlathe otg --ports p1=eth1,p2=eth2 & scripts/fuzz_otg.py [--url HOST:PORT] [--count N] [--seed N]

Fails if an answer is neither 200 nor 400, if the server ends, or if a field that the model does not have is accepted.
"""

import argparse
import copy
import http.client
import json
import random
import sys

PORT = {"tx_name": "p1", "rx_names": ["p2"]}
FLOWS = [
    {"packet": [{"choice": "ethernet"}, {"choice": "ipv4", "ipv4": {"dst": {"choice": "value", "value": "10.0.0.1"}}}, {"choice": "udp"}],
     "size": {"choice": "fixed", "fixed": 128}, "rate": {"choice": "pps", "pps": 10},
     "metrics": {"enable": True, "latency": {"enable": True, "mode": "cut_through"}}},
    {"packet": [{"ethernet": {"src": {"increment": {"start": "02:00:00:00:00:01", "count": 9}}}}, {"vlan": {"id": {"values": [1, 2]}}},
                {"ipv6": {"flow_label": {"random": {"max": 99, "count": 5}}}}, {"tcp": {"checksum": {"generated": "bad"}}}],
     "size": {"increment": {"start": 100, "end": 200, "step": 3}}, "rate": {"mbps": 1},
     "duration": {"fixed_packets": {"packets": 10, "delay": {"microseconds": 5}}}},
    {"packet": [{"ethernet": {}}, {"ipv4": {"priority": {"dscp": {"phb": {"value": 46, "metric_tags": [{"name": "t"}]}}}}}, {"udp": {}},
                {"vxlan": {"vni": {"decrement": {"start": 9, "count": 3}}}}, {"ethernet": {}}, {"ipv4": {}}, {"custom": {"bytes": "0a0b"}}],
     "size": {"weight_pairs": {"custom": [{"size": 300, "weight": 2}]}}, "duration": {"burst": {"packets": 5, "bursts": 2}},
     "payload": {"fixed": {"pattern": "aa55"}}},
]  # fmt: skip
VALID = {
    "ports": [{"name": "p1", "location": "p1"}, {"name": "p2", "location": "p2"}],
    "layer1": [{"name": "l", "port_names": ["p1"], "speed": "speed_1_gbps"}],
    "captures": [{"name": "c", "port_names": ["p2"], "filters": [{"ipv4": {"dst": {"value": "0a000001"}}}]}],
    "devices": [{"name": "d", "ethernets": [{
        "name": "e", "connection": {"port_name": "p1"}, "mac": "02:00:00:00:00:01", "vlans": [{"name": "v", "id": 5}],
        "ipv4_addresses": [{"name": "i", "address": "10.0.0.1", "gateway": "10.0.0.2", "prefix": 24}]}]}],
    "flows": [{"name": f"f{n}", "tx_rx": {"choice": "port", "port": PORT}, **flow} for n, flow in enumerate(FLOWS)],
}  # fmt: skip
VALUES = [None, True, False, 0, -1, 1.5, 2**32, 2**64, 1e308, "", "x", "0", "\0\u202e", "10.0.0.256", "00:00:00:00:00:0g", [], {}, [[]], [None],
          {"choice": "value"}, "a" * 5000, list(range(300))]  # fmt: skip


def places(value, found):
    """Every (container, key) in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        places(inner, found)
    return found


def mutate(rng):
    """A configuration, and whether it has a field that no model has."""
    config, unknown = copy.deepcopy(VALID), False
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        container, key = rng.choice(places(config, []))
        what = rng.randrange(6)
        if what == 0 and isinstance(container[key], dict):
            container[key]["not_in_the_model"] = copy.deepcopy(rng.choice(VALUES))
        elif what == 1 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif what == 2:
            del container[key]
        elif what == 3:
            other, at = rng.choice(places(config, []))
            container[key] = copy.deepcopy(other[at])
        else:
            container[key] = copy.deepcopy(rng.choice(VALUES))
    text = json.dumps(config)
    unknown = any(key == "not_in_the_model" for _, key in places(config, []))
    return text, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:8080")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    server = http.client.HTTPConnection(options.url, timeout=30)
    seen = {}
    for n in range(options.count + 1):
        text, unknown = mutate(rng) if n < options.count else (json.dumps(VALID), False)
        if n % 50 == 49:
            cut = rng.randrange(len(text))
            text, unknown = text[:cut] + rng.choice(["", "}", '"', "\x01"]) + text[cut + 1 :], False
        server.request("POST", "/config", text.encode(), {"Content-Type": "application/json"})
        answer = server.getresponse()
        body = answer.read()
        seen[answer.status] = seen.get(answer.status, 0) + 1
        if answer.status not in (200, 400) or (unknown and answer.status == 200) or (n == options.count and answer.status != 200):
            sys.exit(f"request {n} (seed {options.seed}): status {answer.status} {body[:300]!r}\n{text[:3000]}")
    print(f"{sum(seen.values())} requests: " + ", ".join(f"{count} with status {status}" for status, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
