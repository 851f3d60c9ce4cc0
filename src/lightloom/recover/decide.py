"""What to do about a loss: keep, spare, shrink, drop a replica, re-plan, rewind, wait. Pure.

Cheapest first: a spare takes the slot and gets the state from a holder of the same shard, or from
the copy an agent keeps of it; without one the replica is dropped and its micro-batches move; when
no whole replica is left the members are cut by the next layout of the plan and take their parts out
of the old ones; without any holder of a shard all members rewind to the newest snapshot together;
without a snapshot nothing is decided and everything is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from .record import RECUT, SNAPSHOT, Epoch, Kept, Member, Rank, Rules

LINK = "link lost"
"""Why an epoch only makes its groups again: they broke and nobody died."""


REROUTE = 2
"""Times groups are made again for the same step before another way is taken."""


class Ready(msgspec.Struct, frozen=True):
    """A live rank and the agent that owns it."""

    rank: Rank
    agent: int


Part = tuple[int, int, int]
"""uid, layout and shard: one memory may hold the state as it was cut before, too."""


class Known(msgspec.Struct, frozen=True):
    """What a decision is made from."""

    base: int
    """Last committed step."""
    ready: Mapping[int, Ready]
    holds: Mapping[int, int]
    """Live ranks that hold the state at `base` -> which shard of it."""
    donors: Mapping[int, int]
    """Shard of the layout before -> who has it at `base`: a holder, else a rank kept somewhere."""
    kept: Mapping[Part, Kept]
    """Part of a lost rank -> what is kept of it."""


def balanced(uids: tuple[int, ...], replicas: int, micro_batches: int) -> tuple[int, ...]:
    """Return the uid of the replica lead for each micro-batch, in turn over the replicas."""
    leads = uids[:: max(len(uids) // max(replicas, 1), 1)]
    return tuple(leads[m % len(leads)] for m in range(micro_batches))


def sticky(before: tuple[int, ...], leads: tuple[int, ...]) -> tuple[int, ...]:
    """Return `before` with the micro-batches of the lost given to those who have fewest."""
    load = dict.fromkeys(leads, 0)
    for uid in before:
        if uid in load:
            load[uid] += 1
    out = []
    for uid in before:
        if uid not in load:
            uid = min(leads, key=lambda lead: (load[lead], leads.index(lead)))
            load[uid] += 1
        out.append(uid)
    return tuple(out)


def _fill(
    rules: Rules, before: Epoch, ready: Mapping[int, Ready], holds: Mapping[int, int]
) -> list[Member]:
    """Return members slot by slot: survivors stay, holders of the shard next, then spares."""
    shards = before.shards
    kept = {m.slot: m for m in before.members if m.uid in ready}
    spare = [u for u in sorted(ready) if u not in {m.uid for m in kept.values()}]
    replicas = []
    for first in range(0, rules.slots - shards + 1, shards):
        slots = range(first, first + shards)
        replicas.append({slot: kept[slot] for slot in slots if slot in kept})
    whole: list[Member] = []
    for index, have in enumerate(replicas):
        slots = range(index * shards, (index + 1) * shards)
        for slot in (s for s in slots if s not in have):
            uid = _candidate(
                slot % shards, shards, spare, replicas[index + 1 :], holds
            )  # fmt: skip
            if uid is not None:
                have[slot] = Member(slot, uid, ready[uid].agent)
                spare = [u for u in spare if u != uid]
        if len(have) == shards:
            whole += [have[slot] for slot in slots]
        else:
            spare += [member.uid for member in have.values()]
            have.clear()
    return whole


def _candidate(
    shard: int,
    shards: int,
    spare: list[int],
    later: list[dict[int, Member]],
    holds: Mapping[int, int],
) -> int | None:
    """Return who takes a slot: a holder of the shard without a whole replica, else an idle rank.

    A holder of another shard is never used: it may be the only donor of that shard.
    """
    own = [u for u in spare if holds.get(u) == shard]
    if own:
        return own[0]
    for replica in (r for r in later if 0 < len(r) < shards):
        for slot, member in list(replica.items()):
            if holds.get(member.uid) == shard:
                del replica[slot]
                return member.uid
    idle = [u for u in spare if u not in holds]
    return idle[0] if idle else None


def holders(before: Epoch, base: int, ready: Mapping[int, Ready]) -> dict[int, int]:
    """Return live ranks that hold the state at `base` (invariant 5), and which shard of it.

    Members do, unless they were still to get it; and who was to give it, member or not.
    """
    joins = dict(before.joins)
    shard_of = {m.uid: m.slot % before.shards for m in before.members}
    found = {
        uid: shard
        for uid, shard in shard_of.items()
        if base > before.base or uid not in joins or _told(ready, uid, before.number)
    }
    if base == before.base:
        found |= {
            donor: shard_of[uid]
            for uid, donor in joins.items()
            if donor >= 0 and donor not in before.kept and donor not in shard_of
        }
    return {uid: shard for uid, shard in found.items() if uid in ready}


def _told(ready: Mapping[int, Ready], uid: int, number: int) -> bool:
    """Return whether a rank said that its state is complete in an epoch."""
    return uid in ready and ready[uid].rank.holds == number


def usable(before: Epoch, base: int, kept: Iterable[Kept]) -> dict[Part, Kept]:
    """Return part -> what is kept of it and equals the state at `base`.

    A whole copy was made after its step was committed. One that a gradient still has to be applied
    to counts only if just that gradient was committed: it was reduced in the epoch that did so.
    """
    giving = {donor for _, donor in before.joins} | {uid for _, uid in before.sources}
    near = {m.uid for m in before.members} | giving
    made = before.number if base > before.base else before.made
    out: dict[Part, Kept] = {}
    for entry in kept:
        if entry.step != base or entry.life != before.life or entry.uid not in near:
            continue
        replay = entry.number >= 0
        if replay and entry.number != made:
            continue
        part = (entry.uid, entry.layout, entry.shard)
        if part not in out or not replay:
            out[part] = entry
    return out


def known(before: Epoch, base: int, ready: Mapping[int, Ready], kept: Iterable[Kept]) -> Known:
    """Return who has which shard at `base`."""
    holds = holders(before, base, ready)
    copies = {at: k for at, k in usable(before, base, kept).items() if at[0] not in ready}
    donors = {
        shard: uid for uid, layout, shard in sorted(copies, reverse=True) if layout == before.layout
    }
    donors |= {holds[uid]: uid for uid in sorted(holds, reverse=True)}
    return Known(base, ready, holds, donors, copies)


def decide(
    rules: Rules,
    before: Epoch,
    base: int,
    agents: tuple[int, ...],
    ready: Mapping[int, Ready],
    snapshot: tuple[int, int],
    why: str = "",
    kept: Iterable[Kept] = (),
) -> Epoch | None:
    """Return the epoch after `before`, or None when nothing can be done yet.

    `snapshot` is (step, cursor) of the newest snapshot that verified, (-1, 0) without one; `kept`
    what the agents keep of ranks.
    """
    have = known(before, base, ready, kept)
    layouts = rules.layouts[:1] if rules.wait else rules.layouts
    for layout, shards in enumerate(layouts):
        if layout == before.layout:
            members = _fill(rules, before, ready, have.holds)
        else:
            members = _afresh(rules, shards, ready, have)
        if not members and layout == before.layout:
            members = _one(shards, ready, have)
        replicas, wanted = len(members) // shards, rules.slots // rules.shards
        strict = rules.wait or not before.members
        if replicas < (wanted if strict else max(rules.least if layout == 0 else 1, 1)):
            continue
        epoch = _form(rules, before, have, layout, members, snapshot)
        if epoch is not None:
            again = before.regroups if base == before.base else 0
            regroups = again + 1 if why == LINK else 0
            return msgspec.structs.replace(
                epoch, agents=agents, why=why, regroups=regroups,
                rerouted=before.rerouted or regroups >= REROUTE,
            )  # fmt: skip
    return None


def _one(shards: int, ready: Mapping[int, Ready], have: Known) -> list[Member]:
    """Return one replica of whoever lives: a holder of each shard, twins for what is missing."""
    chosen: dict[int, int] = {}
    for uid in sorted(have.holds, reverse=True):
        chosen[have.holds[uid]] = uid
    rest = [uid for uid in sorted(ready) if uid not in chosen.values()]
    for shard in (s for s in range(shards) if s not in chosen):
        if rest:
            chosen[shard] = rest.pop(0)
    if len(chosen) < shards:
        return []
    return [Member(s, chosen[s], ready[chosen[s]].agent) for s in range(shards)]


def _afresh(rules: Rules, shards: int, ready: Mapping[int, Ready], have: Known) -> list[Member]:
    """Return as many whole replicas of another layout as there are ranks, holders first."""
    order = sorted(ready, key=lambda uid: (uid not in have.holds, uid))
    count = min(len(order), rules.slots) // shards * shards
    return [Member(slot, uid, ready[uid].agent) for slot, uid in enumerate(order[:count])]


def _form(
    rules: Rules, before: Epoch, have: Known, layout: int, members: list[Member],
    snapshot: tuple[int, int],
) -> Epoch | None:  # fmt: skip
    """Return the epoch of these members: who gives whom the state; None if nobody can."""
    base, shards = have.base, rules.layouts[layout]
    cursor, undone, back = before.position(base + 1), 0, False
    sources: tuple[tuple[int, int], ...] = ()
    source_layout = before.layout
    whole = len(have.donors) == before.shards
    if base == 0 and not (whole and layout == before.layout):
        # nothing is committed: any fresh state is a good beginning
        donors = {m.slot % shards: m.uid for m in reversed(members)}
        joins = _joins(shards, members, {}, donors)
    elif whole and layout == before.layout:
        joins = _joins(shards, members, have.holds, have.donors)
    else:
        if whole:
            sources = tuple(sorted(have.donors.items()))
        elif all_give(before, have):
            sources, source_layout = before.sources, before.source_layout
        joins = tuple((m.uid, RECUT) for m in members)
        if not sources:
            if snapshot[0] < 0:
                return None
            back, undone = True, max(base - snapshot[0], 0)
            base, cursor = snapshot
            joins = tuple((m.uid, SNAPSHOT) for m in members)
    same = layout == before.layout and not back
    first, share = _work(rules, before, base, members, shards, same)
    gives = {d for _, d in joins if d >= 0} | {uid for _, uid in sources}
    infos = {
        u: have.ready[u].rank.info for u in {m.uid for m in members} | gives if u in have.ready
    }
    lost = {k.uid: k.info for k in have.kept.values() if k.uid in gives}
    return Epoch(
        number=before.number + 1, agents=(), members=tuple(members), base=base, cursor=cursor,
        joins=joins, first=first, share=share, lost=undone, life=before.life + back,
        made=-1 if back else before.number if base > before.base else before.made, layout=layout,
        shards=shards, sources=sources, source_layout=source_layout, kept=tuple(sorted(lost)),
        infos=tuple(sorted((infos | lost).items())),
    )  # fmt: skip


def all_give(before: Epoch, have: Known) -> bool:
    """Return whether the sources of a cut that was not finished can still all be read."""
    return bool(before.sources) and have.base == before.base and all(
        uid in have.ready or (uid, before.source_layout, shard) in have.kept
        for shard, uid in before.sources
    )  # fmt: skip


def _joins(
    shards: int,
    members: Iterable[Member],
    holds: Mapping[int, int],
    donors: Mapping[int, int],
) -> tuple[tuple[int, int], ...]:
    return tuple(
        (m.uid, donors[m.slot % shards])
        for m in members
        if donors[m.slot % shards] != m.uid and holds.get(m.uid) != m.slot % shards
    )


def _work(
    rules: Rules, before: Epoch, base: int, members: list[Member], shards: int, same: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return who computes the micro-batches of the next step and of those after it."""
    uids = tuple(m.uid for m in members)
    replicas = len(members) // shards
    count = rules.micro_batches
    if rules.rescale:
        count = max(count * rules.shards // rules.slots, 1) * replicas
    share = balanced(uids, replicas, count)
    old = before.work(base + 1) if before.members and same else ()
    if rules.rescale or len(old) != count:
        return share, share
    return sticky(old, uids[::shards]), share
