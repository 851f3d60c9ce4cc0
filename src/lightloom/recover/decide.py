"""What to do about a loss: keep, spare, shrink, drop a replica, rewind, wait. Pure.

Cheapest first: a spare takes the slot and gets the state from a holder of the same shard; without
one the replica is dropped and its micro-batches move; without any holder all members rewind to the
newest snapshot together; without a snapshot nothing is decided and everything is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from .record import SNAPSHOT, Epoch, Member, Rank, Rules


class Ready(msgspec.Struct, frozen=True):
    """A live rank and the agent that owns it."""

    rank: Rank
    agent: int


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
    rules: Rules, before: Epoch, ready: Mapping[int, Ready], holds: frozenset[int]
) -> list[Member]:
    """Return members slot by slot: survivors stay, holders of the shard next, then spares."""
    kept = {m.slot: m for m in before.members if m.uid in ready}
    shard_of = {m.uid: m.slot % rules.shards for m in before.members}
    spare = [u for u in sorted(ready) if u not in {m.uid for m in kept.values()}]
    replicas = []
    for first in range(0, rules.slots, rules.shards):
        slots = range(first, first + rules.shards)
        replicas.append({slot: kept[slot] for slot in slots if slot in kept})
    whole: list[Member] = []
    for index, have in enumerate(replicas):
        slots = range(index * rules.shards, (index + 1) * rules.shards)
        for slot in (s for s in slots if s not in have):
            uid = _candidate(
                slot % rules.shards, rules.shards, spare, replicas[index + 1 :], shard_of, holds
            )
            if uid is not None:
                have[slot] = Member(slot, uid, ready[uid].agent)
                spare = [u for u in spare if u != uid]
        if len(have) == rules.shards:
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
    shard_of: Mapping[int, int],
    holds: frozenset[int],
) -> int | None:
    """Return who takes a slot: a holder of the shard without a whole replica, else an idle rank.

    A holder of another shard is never used: it may be the only donor of that shard.
    """
    own = [u for u in spare if u in holds and shard_of.get(u) == shard]
    if own:
        return own[0]
    for replica in (r for r in later if 0 < len(r) < shards):
        for slot, member in list(replica.items()):
            if member.uid in holds and shard_of.get(member.uid) == shard:
                del replica[slot]
                return member.uid
    idle = [u for u in spare if u not in holds]
    return idle[0] if idle else None


def holders(before: Epoch, base: int, ready: Mapping[int, Ready]) -> frozenset[int]:
    """Return live members of `before` that hold the state at `base` (invariant 5)."""
    joining = {uid for uid, _ in before.joins}
    return frozenset(
        m.uid
        for m in before.members
        if m.uid in ready
        and (base > before.base or m.uid not in joining or ready[m.uid].rank.holds == before.number)
    )


def decide(
    rules: Rules,
    before: Epoch,
    base: int,
    agents: tuple[int, ...],
    ready: Mapping[int, Ready],
    snapshot: tuple[int, int],
    why: str = "",
) -> Epoch | None:
    """Return the epoch after `before`, or None when nothing can be done yet.

    `snapshot` is (step, cursor) of the newest snapshot that verified, (-1, 0) without one.
    """
    holds = holders(before, base, ready)
    members = _fill(rules, before, ready, holds)
    replicas = len(members) // rules.shards
    wanted = rules.slots // rules.shards
    if replicas < (wanted if rules.wait or not before.members else max(rules.least, 1)):
        return None
    shards = {m.uid: m.slot % rules.shards for m in before.members}
    donors = {shards[uid]: uid for uid in sorted(holds, reverse=True)}
    cursor, lost = before.position(base + 1), 0
    if base == 0 and not holds:  # nothing is committed: any fresh state is a good beginning
        donors = {m.slot % rules.shards: m.uid for m in reversed(members)}
    back = len(donors) < rules.shards
    if back and snapshot[0] < 0:
        return None
    if back:
        lost, (base, cursor) = max(base - snapshot[0], 0), snapshot
    joins = _joins(rules, members, shards, holds, donors, back)
    first, share = _work(rules, before, base, members, back)
    reachable = sorted({m.uid for m in members} | {donor for _, donor in joins})
    return Epoch(
        number=before.number + 1, agents=agents, members=tuple(members), base=base, cursor=cursor,
        joins=joins, first=first, share=share, lost=lost,
        infos=tuple((u, ready[u].rank.info) for u in reachable if u in ready), why=why,
    )  # fmt: skip


def _joins(
    rules: Rules,
    members: Iterable[Member],
    shards: Mapping[int, int],
    holds: frozenset[int],
    donors: Mapping[int, int],
    back: bool,
) -> tuple[tuple[int, int], ...]:
    if back:
        return tuple((m.uid, SNAPSHOT) for m in members)
    return tuple(
        (m.uid, donors[m.slot % rules.shards])
        for m in members
        if donors[m.slot % rules.shards] != m.uid
        and not (m.uid in holds and shards.get(m.uid) == m.slot % rules.shards)
    )


def _work(
    rules: Rules, before: Epoch, base: int, members: list[Member], back: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return who computes the micro-batches of the next step and of those after it."""
    uids = tuple(m.uid for m in members)
    replicas = len(members) // rules.shards
    count = rules.micro_batches
    if rules.rescale:
        count = max(count * rules.shards // rules.slots, 1) * replicas
    share = balanced(uids, replicas, count)
    old = before.work(base + 1) if before.members and not back else ()
    if rules.rescale or len(old) != count:
        return share, share
    return sticky(old, uids[:: rules.shards]), share
