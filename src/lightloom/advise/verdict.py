"""What to do first: from the transfer-bound exposed share and the what-ifs, not from the share."""

from __future__ import annotations

from lightloom.core.advice import RankSplit, Sync, Verdict, VerdictCode, WhatIf, saving
from lightloom.core.lang import _

WORTH = 0.05
"""Share of the step below which a cure is not worth its trouble."""
HIDEABLE = 0.8
"""Overlap that saves this part of what an infinite fabric saves makes buying unnecessary."""
REACHABLE = 1 / 3
"""Part of the device's idle time that a cure of the host is taken to reach (assumed): closing every
gap is a bound that nothing reaches, while a late rank has one place to look at."""
BUY, DO_NOT = 0.30, 0.10
"""The articles' rule: above the first share of exposed communication buy, below the second not."""


def naive_rule(share: float) -> str:
    """Return what the rule on the exposed share of communication alone would say."""
    if share > BUY:
        return _("buy a faster fabric")
    return _("do not buy") if share < DO_NOT else _("undecided")


def verdict_of(
    splits: tuple[RankSplit, ...],
    sync: Sync,
    what_ifs: tuple[WhatIf, ...],
    transfer: float | None,
    waiting: float | None,
) -> Verdict:
    """Return the verdict: the cure whose what-if saves most, if it saves at least 5 %."""
    spans = [s for s in splits if s.span_s > 0]
    share = sum(s.exposed_s / s.span_s for s in spans) / len(spans) if spans else 0.0
    found = {w.change: w for w in what_ifs}
    code, proof = _choose(found, splits)
    rank = sync.late_rank if code == "stragglers-first" and sync.late_same else -1
    return Verdict(
        code=code,
        text=_text(code, found, sync, rank),
        proof=proof,
        transfer_exposed=transfer,
        waiting_exposed=waiting,
        naive=naive_rule(share),
        naive_share=share,
        subject=rank,
    )


def _choose(found: dict[str, WhatIf], splits: tuple[RankSplit, ...]) -> tuple[VerdictCode, str]:
    if not found:
        return "not-enough-data", ""
    fabric, skew, host = found["bandwidth=inf"], found["skew=0"], found["host=0"]
    cures: list[tuple[float, VerdictCode, WhatIf]] = [
        (fabric.high if fabric.saved is None else fabric.saved, "fabric-helps", fabric),
        (skew.high if skew.saved is None else skew.saved, "stragglers-first", skew),
        (REACHABLE * (host.saved or 0.0), "host-first", host),
    ]
    best, code, what = max(cures, key=lambda c: c[0])
    if best < WORTH:
        return "compute-bound", what.change
    if what.saved is None:
        return "not-enough-data", what.change
    if code == "fabric-helps" and _hideable(found["overlap=1"], fabric, splits):
        return "strategy-first", "overlap=1"
    return code, what.change


def _hideable(overlap: WhatIf, fabric: WhatIf, splits: tuple[RankSplit, ...]) -> bool:
    """Return whether overlap would do what the fabric does, and is hardly used yet."""
    comm, hidden = sum(s.comm_s for s in splits), sum(s.hidden_s for s in splits)
    gain = (overlap.saved or 0.0) >= HIDEABLE * (fabric.saved or 0.0)
    return gain and comm > 0 and hidden < 0.5 * comm


def _text(code: VerdictCode, found: dict[str, WhatIf], sync: Sync, rank: int) -> str:
    fabric, skew = saving(found.get("bandwidth=inf")), saving(found.get("skew=0"))
    host, overlap = saving(found.get("host=0")), saving(found.get("overlap=1"))
    who = _("rank {rank} is late").format(rank=rank) if rank >= 0 else _("ranks wait")
    texts = {
        "fabric-helps": _("the fabric is the limit: an infinitely fast one saves {fabric}"),
        "stragglers-first": _("find out why {who}. An infinitely fast fabric would save {fabric};"
                              " zero skew {skew}; a host that never idles {host}"),
        "host-first": _("fix the host first: the device idles. No idle saves {host}; an infinitely"
                        " fast fabric {fabric}; zero skew {skew}"),
        "strategy-first": _("change the strategy first: perfect overlap saves {overlap}; an"
                            " infinitely fast fabric {fabric}"),
        "compute-bound": _("computing is the limit: neither fabric ({fabric}) nor skew ({skew}) nor"
                           " host ({host}) is worth a change"),
        "not-enough-data": _("waiting or transfer, these files cannot tell: a fabric would save"
                             " {fabric}. Profile all ranks of a group in the same steps"),
    }  # fmt: skip
    if sync.how == "library" and code == "stragglers-first" and rank < 0:
        who = _("the collectives wait")
    return texts[code].format(fabric=fabric, skew=skew, host=host, overlap=overlap, who=who)
