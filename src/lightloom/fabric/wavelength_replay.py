"""A stream of requests played on a fibre map: who gets light, who is refused and why.

The state of a link is one Python integer whose set bits are free channels, so continuity along a
route is `&`, a block of n adjacent channels is a few shifts, and first fit is the lowest set bit.
Events are ordered once, with numpy; the loops below touch nothing but integers and lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from lightloom.core.errors import InputError, nearest

from .wavelength import NO_CAPACITY, NO_CONTIGUITY, NO_CONTINUITY, Outcome, Requests, Setting
from .wavelength_routes import RouteTable, width

Policy = Literal["first-fit", "weave", "replan"]
POLICIES: dict[str, str] = {
    "first-fit": "routes in order, lowest channel (KSP-FF)",
    "weave": "the route whose links are emptiest for their number, low channels preferred",
    "replan": "weave, and every lightpath re-planned when one is refused: an estimated bound",
}
CROWDING = 1.0
"""Weave: a link filled to share u costs 1 + CROWDING u^2; one value for every setting."""
LOWNESS = 0.1
"""Weave: cost of starting one channel higher, in channel-links; keeps high channels whole."""


class Option(NamedTuple):
    """One route for one demand."""

    links: tuple[int, ...]
    shifts: tuple[int, ...]
    """Shifts that leave a bit set where a free block of `width` channels starts."""
    ones: int
    width: int
    route: int
    pool: int
    """Channels that the demand's traffic class may use."""


def shifts(count: int) -> tuple[int, ...]:
    """Return the shifts that find `count` adjacent set bits: doubling, then the rest."""
    out, have = [], 1
    while have < count:
        step = min(have, count - have)
        out.append(step)
        have += step
    return tuple(out)


def replay(
    setting: Setting,
    table: RouteTable,
    requests: Requests,
    policy: Policy = "weave",
    pools: Sequence[int] | None = None,
) -> Outcome:
    """Return what became of every request.

    `pools`: bit mask of channels per traffic class; None gives every class the whole fibre.
    """
    if policy not in POLICIES:
        raise InputError(f"no wavelength policy {policy!r}{nearest(policy, POLICIES)}")
    full = (1 << setting.channels) - 1
    wanted = _wanted(setting, table, requests, [full] if pools is None else list(pools))
    free = [full] * table.spectra
    if policy == "first-fit":
        return _first_fit(wanted, requests.events(), free)
    return _weave(wanted, requests.events(), free, full, policy == "replan")


def _wanted(
    setting: Setting, table: RouteTable, requests: Requests, pools: list[int]
) -> list[tuple[Option, ...]]:
    """Return the options of every request; equal demands share one tuple."""
    top = int(requests.rate_R.max(initial=0)) + 1
    if int(requests.class_R.max(initial=0)) >= len(pools):
        raise InputError(f"{len(pools)} channel pools for class {int(requests.class_R.max())}")
    code = (requests.class_R * len(table.pairs) + requests.pair_R) * top + requests.rate_R
    unique, inverse = np.unique(code, return_inverse=True)
    known: dict[tuple[int, int, tuple[int, ...]], tuple[Option, ...]] = {}
    options = []
    for item in unique.tolist():
        rest, rate = divmod(item, top)
        kind, pair = divmod(rest, len(table.pairs))
        need = tuple(width(setting, rate, bits) for bits in (1, 2, 3, 4))
        key = (kind, pair, need)
        if key not in known:
            known[key] = tuple(
                Option(r.links, shifts(n), (1 << n) - 1, n, j, pools[kind])
                for j, r in enumerate(table.routes[pair])
                for n in (need[r.bits - 1],)
            )
        options.append(known[key])
    return [options[i] for i in inverse.tolist()]


def why(free: list[int], options: tuple[Option, ...]) -> int:
    """Return the reason code of a refusal: the mildest obstacle over all routes."""
    worst = NO_CAPACITY
    for links, _, _, need, _, pool in options:
        both = pool
        enough = True
        for link in links:
            both &= free[link]
            enough = enough and (free[link] & pool).bit_count() >= need
        if both.bit_count() >= need:
            return NO_CONTIGUITY
        if enough:
            worst = NO_CONTINUITY
    return worst


def _log(
    wanted: list[tuple[Option, ...]], chosen: list[Option | None], first: list[int],
    reason: bytearray, moves: int = 0,
) -> Outcome:  # fmt: skip
    route = [-1 if o is None else o.route for o in chosen]
    wide = [0 if o is None else o.width for o in chosen]
    return Outcome(
        np.frombuffer(bytes(reason), np.int8), np.array(route, np.int16),
        np.array(first, np.int16), np.array(wide, np.int16), moves,
    )  # fmt: skip


def _first_fit(wanted: list[tuple[Option, ...]], events: list[int], free: list[int]) -> Outcome:
    count = len(wanted)
    chosen: list[Option | None] = [None] * count
    first = [-1] * count
    block = [0] * count
    reason = bytearray(count)
    for event in events:
        if event >= 0:
            for option in wanted[event]:
                links, steps, ones, _, _, mask = option
                for link in links:
                    mask &= free[link]
                for step in steps:
                    mask &= mask >> step
                if mask:
                    start = (mask & -mask).bit_length() - 1
                    first[event] = start
                    block[event] = bits = ones << start
                    chosen[event] = option
                    for link in links:
                        free[link] ^= bits
                    break
            else:
                reason[event] = why(free, wanted[event])
        else:
            taken = chosen[~event]
            if taken is not None:
                bits = block[~event]
                for link in taken[0]:
                    free[link] ^= bits
    return _log(wanted, chosen, first, reason)


def _by_cost(wanted: list[tuple[Option, ...]]) -> list[tuple[tuple[int, Option], ...]]:
    """Return options with their least possible cost, cheapest first."""
    known: dict[int, tuple[tuple[int, Option], ...]] = {}
    for options in wanted:
        if id(options) not in known:
            costed = [(o.width * len(o.links), o) for o in options]
            known[id(options)] = tuple(sorted(costed, key=lambda pair: (pair[0], pair[1].route)))
    return [known[id(options)] for options in wanted]


def cheapest(
    options: tuple[tuple[int, Option], ...], free: list[int], price: list[float]
) -> tuple[Option | None, int]:
    """Return the option of least cost and its first channel.

    cost = width x sum over links of (1 + CROWDING u^2) + LOWNESS x first channel; the number of
    channel-links is a floor of it, so the search stops at the first option that cannot win.
    """
    best = float("inf")
    choice, start = None, -1
    for floor, option in options:
        if floor >= best:
            break
        links, steps, _, wide, _, mask = option
        cost = 0.0
        for link in links:
            cost += price[link]
            mask &= free[link]
        cost *= wide
        if cost >= best:
            continue
        for step in steps:
            mask &= mask >> step
        if mask:
            low = (mask & -mask).bit_length() - 1
            cost += LOWNESS * low
            if cost < best:
                best, choice, start = cost, option, low
    return choice, start


def prices(channels: int) -> list[float]:
    """Return the price of a link by its number of taken channels."""
    return [1.0 + CROWDING * (used / channels) ** 2 for used in range(channels + 1)]


def _weave(
    wanted: list[tuple[Option, ...]], events: list[int], free: list[int], full: int, replan: bool
) -> Outcome:
    count, channels = len(wanted), full.bit_length()
    costed, level = _by_cost(wanted), prices(full.bit_length())
    price = [level[0]] * len(free)
    chosen: list[Option | None] = [None] * count
    first, reason, active, moves = [-1] * count, bytearray(count), dict[int, int](), 0
    for event in events:
        if event >= 0:
            option, start = cheapest(costed[event], free, price)
            if option is None:
                reason[event] = why(free, wanted[event])
                if not replan:
                    continue
                packed = repack([*active, event], costed, len(free), full, level)
                if packed is None:
                    continue
                reason[event] = 0
                moves += sum(first[i] != s or chosen[i] is not o for i, o, s in packed[:-1])
                free[:] = [full] * len(free)
                for i, o, s in packed:
                    chosen[i], first[i] = o, s
                    active[i] = o.ones << s
                    for link in o.links:
                        free[link] ^= active[i]
                price[:] = [level[channels - f.bit_count()] for f in free]
                continue
            chosen[event], first[event] = option, start
            active[event] = bits = option[2] << start
        else:
            done = active.pop(~event, None)
            if done is None:
                continue
            bits, option = done, chosen[~event]
        for link in option[0]:  # type: ignore[index]
            free[link] ^= bits
            price[link] = level[channels - free[link].bit_count()]
    return _log(wanted, chosen, first, reason, moves)


def repack(
    items: list[int], costed: list[tuple[tuple[int, Option], ...]], links: int, full: int,
    level: list[float],
) -> list[tuple[int, Option, int]] | None:  # fmt: skip
    """Return a fresh assignment of all `items`, or None where this order does not fit.

    Hungriest first (channel-links of the best route), as XLRON's resource-prioritised
    defragmentation does: an estimate of what any allocator could reach, not a proof.
    """
    free = [full] * links
    price, channels = [level[0]] * links, full.bit_length()
    out = {}
    for item in sorted(items, key=lambda i: -costed[i][0][0]):
        option, start = cheapest(costed[item], free, price)
        if option is None:
            return None
        out[item] = (item, option, start)
        for link in option.links:
            free[link] ^= option.ones << start
            price[link] = level[channels - free[link].bit_count()]
    return [out[item] for item in items]
