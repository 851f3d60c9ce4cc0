"""Wavelengths as a resource: fibre maps, requests for light, what became of each request.

Axes: R requests, E events (an arrival or a departure), L links, P routes of one pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from lightloom.core.errors import InputError, nearest
from lightloom.core.files import CATALOG, read_json, read_toml

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

ADMITTED, NO_CAPACITY, NO_CONTINUITY, NO_CONTIGUITY = 0, 1, 2, 3
REASONS = (
    "admitted",
    "every route has a link without enough free channels of this class",
    "no route has the same free channels on all its links (continuity)",
    "enough equal channels are free on a route, but not side by side (contiguity)",
)
"""Text of `Outcome.reason_R`."""


class FibreMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes joined by pairs of fibres."""

    version: int = 1
    name: str
    title: str = ""
    nodes: tuple[str, ...]
    links: tuple[tuple[int, int, float], ...]
    """Node, node, metres; one entry per pair of fibres."""
    source: str = ""

    def directed(self, shared: bool = False) -> list[tuple[int, int, int, float]]:
        """Return (from, to, link, metres) per direction.

        `shared`: both directions use one spectrum, as undirected studies assume; otherwise each
        direction is a link of its own.
        """
        out = []
        for index, (a, b, metres) in enumerate(self.links):
            if not (0 <= a < len(self.nodes) and 0 <= b < len(self.nodes)) or a == b:
                raise InputError(f"fibre map {self.name}: link {index} joins {a} and {b}")
            out.append((a, b, index if shared else 2 * index, metres))
            out.append((b, a, index if shared else 2 * index + 1, metres))
        return out

    def spectra(self, shared: bool = False) -> int:
        """Return how many independent spectra the map has."""
        return len(self.links) * (1 if shared else 2)


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published test of an allocator: map, grid, demand; and a reference to compare with."""

    title: str
    map: str
    shared: bool
    channels: int
    erlang: float
    """Load that the source quotes, before any truncation of holding times."""
    rate_low: int = 0
    """Gb/s, uniform integers; 0: every request is one channel."""
    rate_high: int = 0
    guard: int = 0
    """Empty slots beside each lightpath."""
    truncated: bool = False
    """Holding times above twice the mean are drawn again (cuts the true load by 31 %)."""
    slot_hz: float = 12.5e9
    blocking: float
    """Reference: share of requests refused by k = 50 routes by hops, first fit."""
    spread: float
    """Standard deviation of one run, where the source gives it; 0 where it does not."""
    ref: str


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, Setting]


def map_names() -> tuple[str, ...]:
    """Return the fibre maps of the catalogue."""
    return tuple(sorted(p.stem for p in (CATALOG / "optics" / "maps").glob("*.json")))


def load_map(name: str) -> FibreMap:
    """Return the fibre map called `name`, or the one in a JSON file."""
    if name.endswith(".json"):
        return read_json(name, FibreMap, "fibre map")
    if name not in map_names():
        raise InputError(f"no fibre map {name!r}{nearest(name, map_names())}")
    return read_json(CATALOG / "optics" / "maps" / f"{name}.json", FibreMap, "fibre map")


def load_settings() -> dict[str, Setting]:
    """Return the published settings of the catalogue by name."""
    return read_toml(CATALOG / "optics" / "settings.toml", _Settings, "settings").settings


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """Demand in order of arrival. Times in mean holding times."""

    pair_R: I64
    """Index into the pairs of the route table."""
    rate_R: I64
    """Gb/s; 0 is one channel whatever the route."""
    class_R: I64
    """Index into the class pools."""
    arrive_R: F64
    leave_R: F64

    def __len__(self) -> int:
        return len(self.pair_R)

    def events(self) -> list[int]:
        """Return arrivals (request i) and departures (~i) in order of time, arrivals first."""
        count = len(self)
        order = np.argsort(np.concatenate([self.arrive_R, self.leave_R]), kind="stable")
        events: list[int] = np.where(order < count, order, count - 1 - order).tolist()
        return events


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The admission log: one row per request."""

    reason_R: NDArray[np.int8]
    """Index into REASONS; 0 is admitted."""
    route_R: NDArray[np.int16]
    """Which of the pair's routes; -1 refused."""
    first_R: NDArray[np.int16]
    """First channel; -1 refused."""
    width_R: NDArray[np.int16]
    """Channels taken on each link of the route, guard included; 0 refused."""
    moves: int = 0
    """Lightpaths moved to make room (re-planning policies only)."""

    def blocking(self, warm_up: int = 0) -> float:
        """Return the share of requests refused after the first `warm_up`."""
        return float(np.mean(self.reason_R[warm_up:] != ADMITTED))


def draw(
    setting: Setting,
    pairs: int,
    count: int,
    rng: np.random.Generator,
    erlang: float | None = None,
    classes: int = 1,
) -> Requests:
    """Return `count` Poisson requests between random pairs, exponential holding times."""
    load = setting.erlang if erlang is None else erlang
    if load <= 0 or count <= 0:
        raise InputError(f"load {load:g} Erlang and {count} requests must be above zero")
    arrive = np.cumsum(rng.exponential(1.0 / load, count))
    hold = rng.exponential(1.0, count)
    while setting.truncated and (late := hold >= 2.0).any():
        hold[late] = rng.exponential(1.0, int(late.sum()))
    pair = rng.integers(0, pairs, count)
    low, high = setting.rate_low, setting.rate_high
    rate = rng.integers(low, high + 1, count) if high else np.zeros(count, np.int64)
    kind = rng.integers(0, classes, count) if classes > 1 else np.zeros(count, np.int64)
    return Requests(pair, rate, kind, arrive, arrive + hold)
