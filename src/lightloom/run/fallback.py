"""Which layouts a run may be cut by: the plan's, and those for when too few ranks are left.

At a loss the first layout of the list that the ranks left can fill is taken. The planner is asked
for the best strategy on every number of ranks below one replica; out of these layouts the list is
made whose steps, summed over these numbers, are shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from lightloom.core.errors import InputError
from lightloom.core.plan import Plan
from lightloom.core.strategy import Strategy
from lightloom.core.units import show_time

from .mesh import INSIDE, layout_of, layout_text, parse_layouts, size_of

Layout = dict[str, int]


class Priced(NamedTuple):
    """The planner's answer for a number of cards."""

    strategy: Strategy
    step_s: float


Price = Callable[[Plan, int, Mapping[str, tuple[int, ...]]], Priced | str]
"""(plan, cards, axis -> degrees allowed) -> the best strategy of the plan's job, or why none."""


class Layouts(NamedTuple):
    """How a run is cut."""

    shards: int
    texts: tuple[str, ...]
    """In order of preference; empty leaves it to the script."""
    notes: list[str]


def choose(
    plan: Plan | None, shards: int | str | None, replan: str | None, price: Price | None
) -> Layouts:
    """Return the layouts that ``--shards`` and ``--replan`` ask for."""
    if shards == "plan" and plan is None:
        raise InputError("--shards plan: there is no plan",
                         out="lightloom run plan.json --shards plan -- train.py")  # fmt: skip
    start = layout_of(plan.strategy, plan.placement.order) if plan and shards == "plan" else None
    replan = replan or ("auto" if start and price else "off")
    if replan == "off":
        return Layouts(size_of(start) if start else int(shards or 1), _texts([start]), [])
    if replan != "auto":
        layouts = _typed(replan, start, shards)
        return Layouts(size_of(layouts[0]), _texts(layouts), _told(plan, layouts, price))
    if plan is None or start is None:
        raise InputError(
            "--replan auto: the planner must know the job and the layout it starts with",
            out="lightloom run plan.json --shards plan --replan auto -- train.py, "
            "or --replan pp=2,tp=2/tp=2",
        )
    if price is None:
        raise InputError("--replan auto: no planner here", out="--replan pp=2,tp=2/tp=2")
    found, notes = table(plan, start, price)
    return Layouts(size_of(start), _texts([start, *found]), [_first(plan, start), *notes])


def _texts(layouts: list[Layout | None] | list[Layout]) -> tuple[str, ...]:
    return tuple(layout_text(layout) for layout in layouts if layout)


def _typed(text: str, start: Layout | None, shards: int | str | None) -> list[Layout]:
    """Return the typed list, the layout to start with first."""
    found = parse_layouts(text)
    if start is not None and found[0] != start:
        return parse_layouts(f"{layout_text(start)}/{text}")
    if isinstance(shards, int) and size_of(found[0]) != shards:
        raise InputError(
            f"--replan {text}: it begins with the layout to start with, of {size_of(found[0])} "
            f"ranks; --shards says {shards}",
            out=f"a first layout of {shards} ranks",
        )
    return found


def table(plan: Plan, start: Layout, price: Price) -> tuple[list[Layout], list[str]]:
    """Return the layouts to fall back to, and what to expect of each in words.

    Only axes of the first layout are used: the script knows how to build those.
    """
    most = size_of(start) - 1
    other = {axis: (1,) for axis in INSIDE if axis not in start}
    best = {n: price(plan, n, other) for n in range(1, most + 1)}
    costs: dict[str, dict[int, Priced | str]] = {}
    layouts: dict[str, Layout] = {}
    for one in best.values():
        if not isinstance(one, str):
            layout = _like(start, one.strategy)
            layouts.setdefault(layout_text(layout), layout)
    for text, layout in layouts.items():
        costs[text] = {
            n: price(plan, n, held(layout)) for n in range(size_of(layout), most + 1)
        }  # fmt: skip
    chain = shortest({text: size_of(layout) for text, layout in layouts.items()}, costs, most)
    notes, left = [], most
    for text in chain:
        notes.append(_line(text, layouts[text], left, costs[text]))
        left = size_of(layouts[text]) - 1
    if left:
        notes.append(f"re-plan: nothing for {_left(left, 1)}: {best[left]}")
    return [layouts[text] for text in chain], notes


def _like(start: Layout, strategy: Strategy) -> Layout:
    """Return a strategy's degrees on the axes of the first layout, those above 1 or the last."""
    found = {axis: getattr(strategy, axis) for axis in start}
    return {axis: n for axis, n in found.items() if n > 1} or {[*start][-1]: 1}


def held(layout: Layout) -> dict[str, tuple[int, ...]]:
    """Return what holds the planner to a layout."""
    return {axis: (layout.get(axis, 1),) for axis in INSIDE}


def shortest(
    sizes: Mapping[str, int], costs: Mapping[str, Mapping[int, Priced | str]], most: int
) -> tuple[str, ...]:
    """Return the list of layouts that covers most numbers of ranks in the least summed time.

    The first layout serves every number of ranks down to its own size, the second goes on below.
    """
    answers: list[tuple[int, float, tuple[str, ...]]] = [(0, 0.0, ())]
    for n in range(1, most + 1):
        options: list[tuple[int, float, tuple[str, ...]]] = [(n, 0.0, ())]
        for text, size in sizes.items():
            steps = [costs[text][m] for m in range(size, n + 1)]
            times = [one.step_s for one in steps if not isinstance(one, str)]
            if steps and len(times) == len(steps):
                bare, total, rest = answers[size - 1]
                options.append((bare, total + sum(times), (text, *rest)))
        answers.append(min(options))
    return answers[most][2]


def _line(text: str, layout: Layout, left: int, costs: Mapping[int, Priced | str]) -> str:
    """Return what to expect of a layout with `left` ranks down to its own number."""
    fewest = size_of(layout)
    times = [one.step_s if not isinstance(one, str) else None
             for one in (costs[left], costs[fewest])]  # fmt: skip
    why = next((one for one in (costs[left], costs[fewest]) if isinstance(one, str)), "")
    if times[0] is None or times[1] is None:
        return f"re-plan: {text} with {_left(left, fewest)}; the planner has no step time: {why}"
    span = show_time(times[0])
    if left != fewest:
        span += f" to {show_time(times[1])}"
    return f"re-plan: {text} with {_left(left, fewest)}, {span} a step expected (derived)"


def _left(most: int, fewest: int) -> str:
    if most == fewest:
        return f"{most} rank{'s' if most > 1 else ''} left"
    return f"{most} to {fewest} ranks left"


def _first(plan: Plan, start: Layout) -> str:
    return (f"start: {layout_text(start)}, {show_time(plan.prediction.step_s)} a step expected of "
            f"{plan.strategy.world_size} ranks of {plan.cluster.name} (derived)")  # fmt: skip


def _told(plan: Plan | None, layouts: list[Layout], price: Price | None) -> list[str]:
    """Return what to expect of a typed list."""
    if plan is None or price is None:
        return [f"re-plan: {' then '.join(_texts(layouts))}; without a plan no step times"]
    begun = layouts[0] == layout_of(plan.strategy, plan.placement.order)
    notes, left = [_first(plan, layouts[0])] if begun else [], size_of(layouts[0]) - 1
    for layout in layouts[1:]:
        ends = {n: price(plan, n, held(layout)) for n in {left, size_of(layout)}}
        notes.append(_line(layout_text(layout), layout, left, ends))
        left = size_of(layout) - 1
    return notes
