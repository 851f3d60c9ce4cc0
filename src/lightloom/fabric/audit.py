"""Claims against physics: each check returns what the numbers allow, with the arithmetic.

A claim names its check and its values (SI); verdicts are ``holds``, ``impossible`` and ``not
enough data``. The articles' claims are in catalog/claims/articles.toml; a user's file has the same
form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import msgspec

from lightloom.core.cluster import Cluster
from lightloom.core.errors import InputError, nearest
from lightloom.core.files import CATALOG, read_bytes, read_toml

LIGHT_SPEED = 299792458.0
FIBRE_INDEX = 1.468
Verdict = Literal["holds", "impossible", "not enough data"]
Number = float | list[float]
ARTICLES = CATALOG / "claims" / "articles.toml"


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody's statement, and the numbers in it."""

    id: str
    text: str
    check: str
    values: dict[str, Number]
    source: str = ""
    assumed: str = ""
    """What we added to be able to judge, and why."""


class Claims(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of claims."""

    claims: tuple[Claim, ...]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A claim with its verdict and the arithmetic."""

    id: str
    text: str
    source: str
    verdict: Verdict
    arithmetic: str
    assumed: str = ""


class Values:
    """The numbers of a claim; a missing one names the claim."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def __getitem__(self, key: str) -> float:
        value = self._get(key)
        if isinstance(value, list):
            raise InputError(f"claim {self._claim.id}: {key} is a list, one number is needed")
        return float(value)

    def many(self, key: str) -> list[float]:
        """Return a list of numbers."""
        value = self._get(key)
        return [float(v) for v in value] if isinstance(value, list) else [float(value)]

    def _get(self, key: str) -> Number:
        if key not in self._claim.values:
            raise InputError(
                f"claim {self._claim.id}: check {self._claim.check!r} needs {key!r}",
                out=f"values = {{ {key} = ... }} in SI units",
            )
        return self._claim.values[key]


Check = Callable[[Values], tuple[Verdict, str]]


def _small_message(v: Values) -> tuple[Verdict, str]:
    flight = v["path_m"] * FIBRE_INDEX / LIGHT_SPEED
    floor = v["hops"] * (v["hop_s"] + flight) + v["adder_s"]
    room = max(0.0, (v["seconds"] - floor) * v["rate"])
    mib = floor + 2**20 / v["rate"]
    text = (
        f"light and conversion {v['hops']:.0f} x ({v['hop_s'] * 1e9:.1f} + {flight * 1e9:.2f}) ns, "
        f"adding {v['adder_s'] * 1e9:.0f} ns: {floor * 1e9:.1f} ns before any byte; the rest moves "
        f"{room / 1024:.1f} KiB at {v['rate'] / 1e12:.2f} TB/s, from on-chip memory only (one HBM "
        f"read is {v['memory_s'] * 1e9:.0f} ns); 1 MiB takes at least {mib * 1e6:.2f} us"
    )
    if floor > v["seconds"]:
        return "impossible", text
    return "not enough data", text + "; the message size is not stated"


def _comparable(v: Values) -> tuple[Verdict, str]:
    return "not enough data", (
        f"{v['one'] * 1e12:.1f} ps is the jitter of a bit clock ({v['one'] / v['symbol_s']:.1%} of "
        f"a {v['symbol_s'] * 1e12:.0f} ps symbol), {v['other'] * 1e9:.0f} ns a spread of packet "
        "delays: different quantities, their ratio means nothing"
    )


def _per_what(v: Values) -> tuple[Verdict, str]:
    board, module = v["rate"] / v["cards"], v["rate"] * v["units"] / v["cards"]
    return "not enough data", (
        f"per board it is {board / 1e9:.1f} GB/s a card ({v['port'] / board:.0f}:1 against a port "
        f"of {v['port'] / 1e9:.0f} GB/s), per module {module / 1e9:.0f} GB/s "
        f"({v['port'] / module:.1f}:1)"
    )


def _at_least(v: Values) -> tuple[Verdict, str]:
    have = math.prod(v.many("factors"))
    parts = " x ".join(f"{f:g}" for f in v.many("factors"))
    text = f"{parts} = {have * 8 / 1e12:.2f} Tb/s against {v['need'] * 8 / 1e12:.2f} Tb/s"
    return ("holds" if have >= v["need"] else "impossible"), text


def _at_most(v: Values) -> tuple[Verdict, str]:
    limit = math.prod(v.many("factors"))
    text = f"limit {limit:.2%}, claimed {v['claim']:.1%}"
    if v["claim"] > limit:
        return "impossible", text
    return (
        "holds",
        text + ": possible for one job alone; under contention it is an output, not an input",
    )


def _share_speedup(v: Values) -> tuple[Verdict, str]:
    gain = (1 - v["after"]) / (1 - v["before"])
    text = (
        f"same computation: {1 - v['before']:.2f} / {1 - v['after']:.2f} of the old step, "
        f"{gain:.2f} times as fast; {v['claim']:.1f} times needs {v['claim'] / gain:.2f} more "
        "from elsewhere"
    )
    return ("holds" if gain >= v["claim"] else "impossible"), text


def _ring_traffic(v: Values) -> tuple[Verdict, str]:
    small, large = v.many("cards")
    each = [2 * (n - 1) / n * v["bytes"] for n in (small, large)]
    return "impossible", (
        f"ring and halving-doubling send 2 (N - 1)/N of the data from each card: "
        f"{each[0] / 2**30:.4f} GiB at {small:.0f} cards, {each[1] / 2**30:.4f} GiB at "
        f"{large:.0f}; all cards together grow as N "
        f"({large * each[1] / (small * each[0]):.2f} times), not N^2"
    )


def _slower_part(v: Values) -> tuple[Verdict, str]:
    most = v["slower"] / (1 + v["slower"])
    text = (
        f"a step that is nothing but this communication slows by 1 - 1/{1 + v['slower']:.2f} = "
        f"{most:.1%}; claimed {v['claim']:.0%}"
    )
    return ("holds" if v["claim"] <= most else "impossible"), text


def _drift(v: Values) -> tuple[Verdict, str]:
    drift = v["kelvin"] * v["metres_per_kelvin"]
    text = (
        f"{v['kelvin']:g} K x {v['metres_per_kelvin'] * 1e9:g} nm/K = {drift * 1e12:.0f} pm "
        f"against {v['limit_m'] * 1e12:g} pm, which is "
        f"{v['limit_m'] / v['metres_per_kelvin']:.3f} K"
    )
    if drift <= v["limit_m"]:
        return "holds", text
    return "impossible", text + "; only the residual of a closed heater loop can be held that small"


def _spectrum(v: Values) -> tuple[Verdict, str]:
    width = v["bits_per_s"] / v["bits_per_symbol"] * v["width"]
    slot = math.ceil(width / v["slot_hz"]) * v["slot_hz"]
    need = v["channels"] * slot
    text = (
        f"{v['bits_per_s'] / v['bits_per_symbol'] / 1e9:.0f} GBd needs {width / 1e9:.0f} GHz, "
        f"a slot of {slot / 1e9:g} GHz; x {v['channels']:.0f} = {need / 1e12:.2f} THz in a band of "
        f"{v['band_hz'] / 1e12:.1f} THz"
    )
    if need <= v["band_hz"]:
        return "holds", text
    bands = math.ceil(need / v["band_hz"] - 1e-9)
    return "impossible", text + f": {bands} bands, or a format with more bits a symbol"


def _error_test(v: Values) -> tuple[Verdict, str]:
    bits = -math.log(1 - v["confidence"]) / v["ber"]
    need, seen = bits / v["bits_per_s"], v["seconds"] * v["bits_per_s"]
    text = (
        f"no error in {bits:.2g} bits for {v['confidence']:.0%}: {need / 3600:.1f} h at "
        f"{v['bits_per_s'] / 1e9:.0f} Gb/s; {v['seconds']:.0f} s show "
        f"{-math.log(1 - v['confidence']) / seen:.1e} at best"
    )
    return ("holds" if v["seconds"] >= need else "impossible"), text


def _material(v: Values) -> tuple[Verdict, str]:
    good = v["low"] <= v["claim"] <= v["high"]
    text = f"{v['claim']:.3g} claimed; known materials {v['low']:.3g} to {v['high']:.3g}"
    return ("holds" if good else "impossible"), text


def _packing(v: Values) -> tuple[Verdict, str]:
    box, part = math.prod(v.many("box_m")), math.prod(v.many("part_m"))
    water = v["watts"] / 4186.0 / v["kelvin"]
    text = (
        f"{v['watts'] / box / 1e6:.2f} MW/m3; water at +{v['kelvin']:.0f} K {water:.1f} kg/s, "
        f"boiling {v['watts'] / 2.257e6:.2f} kg/s; {v['parts']:.0f} packages fill "
        f"{v['parts'] * part:.2f} m3 of {box:.3f} m3"
    )
    return ("holds" if v["parts"] * part <= box else "impossible"), text


def _power(v: Values) -> tuple[Verdict, str]:
    each = v["watts"] / v["cards"]
    text = (
        f"{each:.0f} W a card for everything; the card alone is rated {v['card_w']:.0f} W, "
        f"{v['card_w'] * v['cards'] / 1e6:.2f} MW together"
    )
    return ("holds" if each >= v["card_w"] else "impossible"), text


def _gradient(v: Values) -> tuple[Verdict, str]:
    whole = v["parameters"] * v["bytes_each"]
    ways = math.ceil(whole / v["claim"])
    text = (
        f"{v['parameters']:.0e} x {v['bytes_each']:g} B = {whole / 1e12:g} TB; "
        f"{v['claim'] / 1e9:.0f} GB only as one of {ways} shards"
    )
    return ("holds" if ways <= 1 else "impossible"), text


def _ratio(v: Values) -> tuple[Verdict, str]:
    gain = v["after"] / v["before"] - 1
    text = f"{v['after']:g} / {v['before']:g} - 1 = {gain:+.1%}, claimed {v['claim']:+.0%}"
    return ("holds" if abs(gain - v["claim"]) < 0.01 else "impossible"), text


def _plate(v: Values) -> tuple[Verdict, str]:
    a, b, h = v.many("box_m")
    stiff = v["modulus"] * h**3 / (12 * (1 - v["poisson"] ** 2))
    first = math.pi / 2 * math.sqrt(stiff / (v["density"] * h)) * (1 / a**2 + 1 / b**2)
    size = math.sqrt(v["claim_hz"] / first)
    text = (
        f"a solid plate of that size, f = pi/2 sqrt(D / rho h) (1/a2 + 1/b2) = {first:.0f} Hz; "
        f"{v['claim_hz']:.0f} Hz would need a piece {size:.1f} times smaller in each direction"
    )
    return ("holds" if v["claim_hz"] <= first else "impossible"), text


def _shield(v: Values) -> tuple[Verdict, str]:
    half = LIGHT_SPEED / v["hz"] / 2
    longest = half / 10 ** (v["claim_db"] / 20)
    return "not enough data", (
        f"a closed metal wall shields far more; a slot of length s lets 20 log10("
        f"{half * 1e3:.2f} mm / s) dB through at {v['hz'] / 1e9:.0f} GHz, so "
        f"{v['claim_db']:.0f} dB needs every slot and "
        f"fibre opening below {longest * 1e3:.2f} mm; the seams are not stated"
    )


def _heat_flux(v: Values) -> tuple[Verdict, str]:
    need = v["flux"] / v["kelvin"]
    text = (
        f"{v['flux'] / 1e4:.0f} W/cm2 over {v['kelvin']:.0f} K needs {need:.2g} W/(m2 K); "
        f"single-phase reaches {v['single_phase']:.2g} in the laboratory"
    )
    if need > v["single_phase"]:
        return "holds", text
    return "not enough data", text + ": two phases are the usual way, not the only one"


CHECKS: dict[str, Check] = {
    "small-message": _small_message, "comparable": _comparable, "per-what": _per_what,
    "at-least": _at_least, "at-most": _at_most, "share-speedup": _share_speedup,
    "ring-traffic": _ring_traffic, "slower-part": _slower_part, "drift": _drift,
    "spectrum": _spectrum, "error-test": _error_test, "material": _material,
    "packing": _packing, "power": _power, "gradient": _gradient, "ratio": _ratio,
    "plate": _plate, "shield": _shield, "heat-flux": _heat_flux,
}  # fmt: skip


def judge(claim: Claim) -> Judged:
    """Return a claim with its verdict."""
    if claim.check not in CHECKS:
        raise InputError(
            f"claim {claim.id}: unknown check {claim.check!r}{nearest(claim.check, CHECKS)}",
            out=f"one of {', '.join(CHECKS)}",
        )
    try:
        verdict, arithmetic = CHECKS[claim.check](Values(claim))
    except (ZeroDivisionError, ValueError, OverflowError) as error:
        raise InputError(f"claim {claim.id}: {error}", out="values must be positive, in SI units")
    return Judged(
        id=claim.id, text=claim.text, source=claim.source, verdict=verdict,
        arithmetic=arithmetic, assumed=claim.assumed,
    )  # fmt: skip


def audit_file(path: str) -> list[Judged]:
    """Return the verdicts on every claim of a file."""
    return [judge(claim) for claim in read_toml(path, Claims, "claims").claims]


def is_claims(path: str) -> bool:
    """Return whether a TOML file holds claims (and is no cluster)."""
    return b"[[claims]]" in read_bytes(path, "claims")


def audit_cluster(cluster: Cluster) -> list[Judged]:
    """Return what the figures of a machine say about one another: light, ports, power, tapers."""
    fabric, chip = cluster.fabric, cluster.chip
    claims = []
    below = 1
    for level in fabric.levels:
        share = level.child_bandwidth / below
        if level.optics is not None:
            o = level.optics
            claims.append(_claim(
                f"{level.name}-fibres", f"{o.fibres} fibres carry what level {level.name} promises",
                "at-least",
                {"factors": [o.fibres, o.channels, o.channel_rate], "need": level.child_bandwidth},
            ))  # fmt: skip
            claims.append(_claim(
                f"{level.name}-band", f"{o.channels} channels of a fibre fit the C band",
                "spectrum",
                {"channels": o.channels, "bits_per_s": o.channel_rate * 8, "bits_per_symbol": 2,
                 "width": 1.5, "slot_hz": o.spacing_hz, "band_hz": 4.8e12},
            ))  # fmt: skip
        if chip.scaleup_bandwidth > 0:
            claims.append(_claim(
                f"{level.name}-port", f"level {level.name} gives a card {share / 1e9:.4g} GB/s",
                "port", {"claim": share, "port": chip.scaleup_bandwidth},
            ))  # fmt: skip
        below *= level.units
    if cluster.site_power_w:
        claims.append(_claim(
            "site-power", f"the site draws {cluster.site_power_w / 1e6:.2f} MW", "power",
            {"watts": cluster.site_power_w, "cards": cluster.cards, "card_w": chip.tdp_w},
        ))  # fmt: skip
    return [judge(claim) for claim in claims]


def _claim(id_: str, text: str, check: str, values: dict[str, Number]) -> Claim:
    return Claim(id=id_, text=text, check=check, values=values, source="cluster file")


def _port(v: Values) -> tuple[Verdict, str]:
    text = f"{v['claim'] / 1e9:.4g} GB/s a card against ports of {v['port'] / 1e9:.4g} GB/s"
    if v["claim"] <= v["port"] * 1.001:
        return "holds", text
    return "not enough data", text + ": needs links beside the ports that the chip's sheet lists"


CHECKS["port"] = _port
