#!/usr/bin/env python3
"""Computes scenarios/sites-computed-30.csv: round trips between 30 cities by the distance on the globe.

These are computed times, not measured ones. Formula: the great circle between the cities' coordinates on a sphere of
6371 km (haversine), times 1.5 because cables are not straight, there and back at 200 km per millisecond (light in
glass), plus 1 ms. Rounded to 0.1 ms. Real paths are often longer, and some regions are connected by detours.
"""

import math
import pathlib

# Latitude and longitude in degrees, north and east positive, to a hundredth.
CITIES = {
    "Amsterdam": (52.37, 4.90), "Athens": (37.98, 23.73), "Bangkok": (13.76, 100.50), "Beijing": (39.90, 116.41),
    "Bogota": (4.71, -74.07), "Buenos Aires": (-34.60, -58.38), "Cairo": (30.04, 31.24), "Cape Town": (-33.92, 18.42),
    "Chicago": (41.88, -87.63), "Dallas": (32.78, -96.80), "Delhi": (28.61, 77.21), "Dubai": (25.20, 55.27),
    "Frankfurt": (50.11, 8.68), "Hong Kong": (22.32, 114.17), "Istanbul": (41.01, 28.98), "Jakarta": (-6.21, 106.85),
    "Johannesburg": (-26.20, 28.05), "Lagos": (6.52, 3.38), "London": (51.51, -0.13), "Los Angeles": (34.05, -118.24),
    "Madrid": (40.42, -3.70), "Mexico City": (19.43, -99.13), "Moscow": (55.76, 37.62), "Mumbai": (19.08, 72.88),
    "Nairobi": (-1.29, 36.82), "New York": (40.71, -74.01), "Sao Paulo": (-23.55, -46.63), "Singapore": (1.35, 103.82),
    "Sydney": (-33.87, 151.21), "Tokyo": (35.68, 139.69),
}
RADIUS_KM = 6371.0
DETOUR = 1.5
KM_PER_MS = 200.0
FIXED_MS = 1.0


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    (phi_a, lambda_a), (phi_b, lambda_b) = (tuple(map(math.radians, place)) for place in (a, b))
    h = (
        math.sin((phi_b - phi_a) / 2) ** 2
        + math.cos(phi_a) * math.cos(phi_b) * math.sin((lambda_b - lambda_a) / 2) ** 2
    )
    return 2 * RADIUS_KM * math.asin(math.sqrt(h))


def round_trip_ms(a: str, b: str) -> float:
    return FIXED_MS + 2 * DETOUR * distance_km(CITIES[a], CITIES[b]) / KM_PER_MS


def table() -> str:
    lines = [
        "# Round trips between 30 cities in milliseconds. COMPUTED from their coordinates, not measured:",
        "# 1 ms + 2 x 1.5 x great-circle distance / (200 km/ms). By scripts/sites_by_distance.py, which has the coordinates.",
        ",".join(["rtt ms", *CITIES]),
    ]
    for a in CITIES:
        lines.append(",".join([a, *("" if a == b else f"{round_trip_ms(a, b):.1f}" for b in CITIES)]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = pathlib.Path(__file__).parent.parent / "scenarios" / "sites-computed-30.csv"
    path.write_text(table(), encoding="utf-8")
