"""The articles' rules of thumb beside our answer, and where each fails."""

from __future__ import annotations

from lightloom.core.advice import Advice
from lightloom.core.decision import FitOption, RuleSaid
from lightloom.core.lang import _
from lightloom.core.model import Model
from lightloom.core.plan import Plan
from lightloom.cost.flops import parameters_of

BUY, DO_NOT = 0.30, 0.10
SMALL, LARGE = 10e9, 100e9


def moves(best: FitOption) -> bool:
    """Return whether our answer leans to the candidate."""
    return best.value > 1.0


def ours(best: FitOption) -> str:
    """Return our answer in few words."""
    return _("{v:.2f}x the work for the money").format(v=min(best.value, 99.0))


def rules_of(
    model: Model,
    here: Plan | None,
    best: FitOption,
    advice: Advice | None,
    utilisation: float | None,
) -> tuple[RuleSaid, ...]:
    """Return every rule with what it says here and whether we agree."""
    return (share_rule(here, best, advice), size_rule(model, best), use_rule(best, utilisation))


def share_rule(here: Plan | None, best: FitOption, advice: Advice | None) -> RuleSaid:
    """Return the rule on the communication share (S2: above 30 % buy, below 10 % do not)."""
    share = (
        advice.verdict.naive_share if advice else (here.prediction.exposed_comm if here else None)
    )
    if share is None:
        says, agrees = _("no share to judge by"), None
    elif share > BUY:
        says, agrees = _("{s:.0%}: buy").format(s=share), moves(best)
    elif share < DO_NOT:
        says, agrees = _("{s:.0%}: do not buy").format(s=share), not moves(best)
    else:
        says, agrees = _("{s:.0%}: says nothing between 10 and 30 %").format(s=share), None
    fails = _(
        "counts waiting as communication: on the public 8-rank DLRM trace 37.6 % is exposed"
        " and 3.7 % of it moves bytes (measured); and it knows no price"
    )
    return RuleSaid(
        rule=_("communication above 30 % pays, below 10 % does not"),
        source="S2",
        says=says,
        ours=ours(best),
        agrees=agrees,
        fails=fails,
    )


def size_rule(model: Model, best: FitOption) -> RuleSaid:
    """Return the rule on the size (S3: below 10 B traditional, from 100 B nearly always)."""
    total = parameters_of(model).total
    if total < SMALL:
        says, agrees = _("{b:.0f} B: traditional").format(b=total / 1e9), not moves(best)
    elif total >= LARGE:
        says, agrees = _("{b:.0f} B: supernode").format(b=total / 1e9), moves(best)
    else:
        says, agrees = _("{b:.0f} B: says nothing between 10 and 100 B").format(b=total / 1e9), None
    fails = _(
        "size is not what crosses the fabric: experts' all-to-all and tp beyond a host do,"
        " so a small MoE can need it and a large dense model with tp 8 need not"
    )
    return RuleSaid(
        rule=_("below 10 B traditional, from 100 B nearly always a supernode"),
        source="S3",
        says=says,
        ours=ours(best),
        agrees=agrees,
        fails=fails,
    )


def use_rule(best: FitOption, utilisation: float | None) -> RuleSaid:
    """Return the rule on utilisation (S2: purchases seen below 20 %)."""
    if utilisation is None:
        says, agrees = _("utilisation not said"), None
    elif utilisation < 0.20:
        says, agrees = _("{u:.0%}: do not buy").format(u=utilisation), True
    else:
        says, agrees = _("{u:.0%}: no objection").format(u=utilisation), True
    fails = _("a mean hides the peak: one job that needs every card once a month is 3 % of use")
    return RuleSaid(
        rule=_("many purchases are used below 20 %"),
        source="S2",
        says=says,
        ours=ours(best),
        agrees=agrees,
        fails=fails,
    )


def serving_rules(best: FitOption, context: float, share: float) -> tuple[RuleSaid, ...]:
    """Return the two articles that disagree on inference."""
    big = share > 0.5
    pool = RuleSaid(
        rule=_("keys and values want one pooled memory: long context needs a supernode"),
        source="S2",
        says=_("{c:,.0f} tokens: {w}").format(c=context, w=_("needed") if big else _("not needed")),
        ours=ours(best),
        agrees=moves(best) == big,
        fails=_(
            "true where the replica outgrows a host; keys and values of a compressed attention"
            " (MLA) are an order smaller"
        ),
    )
    never = RuleSaid(
        rule=_("inference does not need a supernode"),
        source="S3",
        says=_("do not buy"),
        ours=ours(best),
        agrees=not moves(best),
        fails=_("wide expert parallelism and contexts that outgrow a host"),
    )
    return pool, never
