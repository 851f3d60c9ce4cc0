"""The HTML report of ``lightloom advise``."""

from __future__ import annotations

from lightloom.core.advice import Advice, percent, saving
from lightloom.core.lang import _
from lightloom.core.told import told
from lightloom.core.units import show_bytes, show_time

from .advise import first_line, rank_row, shown_ranks, step_line, sync_line
from .page import Section, page, paragraph, table
from .svg import Bar, Range, legend, ranges, stacked_bars


def report(a: Advice) -> str:
    """Return one self-contained page: verdict, pictures, tables, causes, how to re-make it."""
    v = a.verdict
    verdict = f"{v.text} ({_('the rule on the share alone would say')}: {v.naive})"
    sections = [
        Section(_("Where time goes"), _where(a)),
        Section(_("Waiting against transfer"), _waiting(a)),
        Section(_("What if"), _what_ifs(a)),
        Section(_("Causes, heaviest first"), _causes(a)),
        Section(_("Ranks"), _ranks(a)),
        Section(_("Collectives with most waiting"), _collectives(a)),
        Section(_("Assumptions and notes"), _notes(a)),
    ]
    files = a.files[0] if len(a.files) == 1 else f"{a.files[0]} ... ({len(a.files)})"
    return page(
        _("lightloom advise"), first_line(a), verdict, sections,
        f"lightloom advise {files} --html report.html",
    )  # fmt: skip


def _where(a: Advice) -> str:
    bars = []
    for s in shown_ranks(a):
        share = a.sync.by_rank.get(s.rank, a.sync.transfer_share)
        wire = (
            (("exposed", s.exposed_s * 1e3),) if share is None else
            (("transfer", s.exposed_s * share * 1e3), ("waiting", s.exposed_s * (1 - share) * 1e3))
        )  # fmt: skip
        only_copy = max(s.span_s - s.compute_s - s.exposed_s - s.idle_s, 0.0)
        bars.append(
            Bar(f"{_('rank')} {s.rank}",
                (("compute", s.compute_s * 1e3), *wire, ("copy", only_copy * 1e3),
                 ("idle", s.idle_s * 1e3)), show_time(s.span_s))
        )  # fmt: skip
    parts = ["compute", "transfer", "waiting", "copy", "idle"]
    if not a.sync.by_rank and a.sync.transfer_share is None:
        parts = ["compute", "exposed", "copy", "idle"]
    names = {"compute": _("compute"), "transfer": _("exposed transfer"),
             "waiting": _("exposed waiting"), "exposed": _("exposed communication"),
             "copy": _("copies"), "idle": _("idle")}  # fmt: skip
    picture = stacked_bars(bars, _("Where time goes"), "ms")
    return paragraph(step_line(a)) + legend(parts, names) + picture


def _waiting(a: Advice) -> str:
    bars = []
    for i, c in enumerate(a.collectives[:12]):
        waited = max(c.mean_s - c.transfer_s, 0.0) * 1e3
        parts = (("waiting", waited), ("transfer", c.transfer_s * 1e3))
        who = f"{_('last')}: {_('rank')} {c.last_rank}"
        bars.append(Bar(f"{i + 1}. {c.name[:14]}", parts, who))
    if not bars:
        return paragraph(sync_line(a))
    picture = stacked_bars(bars, _("Waiting against transfer"), "ms")
    names = {"waiting": _("waiting for the last rank"), "transfer": _("transfer after it")}
    return paragraph(sync_line(a)) + legend(["waiting", "transfer"], names) + picture


def _what_ifs(a: Advice) -> str:
    rows = [Range(w.change, w.saved, w.low, w.high, f"{saving(w)}") for w in a.what_ifs]
    text = _("Share of the step that is saved; the grey bar is what the evidence allows.")
    cells = [
        [w.change, "-" if w.step_s is None else show_time(w.step_s), saving(w), told(w.why)]
        for w in a.what_ifs
    ]
    head = [_("change"), _("step"), _("saved"), _("how")]
    return paragraph(text, "grey") + ranges(rows, _("What if")) + table(head, cells, words=(3,))


def _causes(a: Advice) -> str:
    rows = [[told(c.what), told(c.next), percent(c.weight)] for c in a.causes]
    if a.stop is not None:
        rows += [[told(c.what), told(c.next), percent(c.weight)] for c in a.stop.causes]
    if not rows:
        return ""
    return table([_("cause"), _("next measurement"), _("weight")], rows, left=2)


def _ranks(a: Advice) -> str:
    head = [_("rank"), _("window"), _("compute %"), _("comm %"), _("exposed %"), _("copies %"),
            _("idle %"), _("transfer"), _("last")]  # fmt: skip
    return table(head, [rank_row(a, s) for s in a.splits], ids=[f"rank{s.rank}" for s in a.splits])


def _collectives(a: Advice) -> str:
    rows = [
        [f"{c.name[:40]} #{c.index}", c.group[:24], show_bytes(c.bytes) if c.bytes else "-",
         show_time(c.mean_s), show_time(c.transfer_s), show_time(c.start_skew_s),
         show_time(c.end_skew_s), str(c.last_rank)]
        for c in a.collectives[:40]
    ]  # fmt: skip
    if not rows:
        return ""
    head = [_("collective"), _("group"), _("bytes"), _("mean"), _("transfer"), _("start skew"),
            _("end skew"), _("last rank")]  # fmt: skip
    return table(head, rows, left=2)


def _notes(a: Advice) -> str:
    said = [
        _("Times are measured (read from the profile); what-ifs are derived by replay of the "
          "dependency structure; verdict thresholds (5 % of the step) are assumed."),
        f"{_('clocks')}: {_(a.clocks.state)}. {told(a.clocks.why)}",
        *(told(note) for note in a.notes),
    ]  # fmt: skip
    return "".join(paragraph(text, "grey") for text in said)
