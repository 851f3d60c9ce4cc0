"""An agent looks for hung ranks: names them, keeps their stacks, ends them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from . import board as b
from . import flight, system, wire
from .nest import RankProc

if TYPE_CHECKING:
    from .agent import Agent


def look(agent: Agent) -> None:
    """Find hung ranks: name them, take their stacks, and end them."""
    now = system.now_ns()
    epoch = agent.state.epoch
    wait_s = agent.nest.wait_s(now)
    if 0.1 < wait_s < 1e8:
        agent.net.tell_all(wire.Waiting(epoch.number, agent.state.durable + 1, wait_s))
    elsewhere = 1e9
    for other in {x.agent for x in epoch.members} - {agent.me}:
        number, _, seconds, at = agent.elsewhere.get(other, (-1, 0, 0.0, 0))
        age = (now - at) / 1e9
        fresh = number == epoch.number and age < 0.3
        elsewhere = min(elsewhere, seconds + age if fresh else 0.0)
    for rank, how in agent.nest.suspects(now, elsewhere):
        rank.named, rank.named_step = how, rank.board.get(b.STEP)
        agent.nest.dump(rank)
        agent.later(0.06, partial(_end, agent, rank, how))


def _end(agent: Agent, rank: RankProc, how: str) -> None:
    """Name a hung rank, keep its stacks and end it."""
    if rank.gone:
        return
    agent.log.event(
        "hang", uid=rank.uid, slot=rank.slot, how=how, step=rank.board.get(b.STEP),
        phase=b.PHASES[rank.phase], kernel=system.blocked_in(rank.pid),
        stack=agent.nest.stack(rank), since_ns=rank.board.get(b.AT),
        killed_ns=rank.board.get(b.KILLED),
    )  # fmt: skip
    flight.write(agent.folder, agent.nest, rank)
    agent.nest.kill(rank)
