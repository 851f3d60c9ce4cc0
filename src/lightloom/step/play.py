"""Play one step: units run their programs on lanes, transfers share ports, events keep order.

A unit computes one piece at a time; each traffic class is a lane on which a unit does one transfer
at a time (pipeline messages: one lane per direction). A collective starts when every unit of its
group has reached it. Rates change only when a transfer starts or ends at a shared port.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lightloom.core.traffic import TrafficClass
from lightloom.flow.clock import Clock

from .contend import Policy, Shares
from .program import Program, Step
from .units import Units
from .work import SELF, Piece, Transfer

COMPUTE, FLOW, ADMIT = 0, 1, 2
BOUNDARY = 1e-9
"""Share of a chunk within which a transfer stands on a chunk's boundary."""
Target = tuple[int, int]
"""(unit, step that waits); step -1 is the piece now running."""


@dataclass(slots=True)
class Flow:
    """A transfer on its way."""

    transfer: Transfer
    members: tuple[int, ...]
    ports: tuple[int, ...]
    kind: int
    seconds: float
    """Duration alone, link faults included."""
    targets: list[Target]
    lane: str
    queued: float
    left: float = 0.0
    rate: float = 0.0
    since: float = 0.0
    begun: float = 0.0
    version: int = 0


@dataclass(slots=True)
class Unit:
    """One played card and where it is in its program."""

    index: int
    steps: list[Step]
    needs: list[int]
    slow: float
    wait: float
    groups: dict[str, tuple[int, ...]]
    peers: dict[int, int]
    at: int = 0
    running: bool = False
    piece: int = 0
    parts: int = 0
    compute_left: float = 0.0
    compute_rate: float = 1.0
    compute_since: float = 0.0
    compute_end: float = 0.0
    piece_start: float = 0.0
    step_start: float = 0.0
    ready: float = 0.0
    version: int = 0
    drags: list[float] = field(default_factory=list)
    """Slow-down by each transfer now under way; the largest counts."""
    blamed: Flow | None = None
    """Transfer that ended last among those waited for."""
    lanes: dict[str, deque[tuple[Transfer, Target, int]]] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)


Spot = tuple[int, str, float, float, str, float, str, int]
"""(unit, lane, start, end, name, bytes, axis or piece, transfer or -1) of one span."""


@dataclass(slots=True)
class Record:
    """What happened."""

    spans: list[Spot] = field(default_factory=list)
    steps: list[tuple[int, int, float, float]] = field(default_factory=list)
    """(unit, step of its program, start, end)."""
    parts: list[dict[str, float]] = field(default_factory=list)
    """Per unit: seconds of compute, slowed, bubble, waiting, and exposed per traffic class."""
    end: float = 0.0
    events: int = 0


def play(
    program: Program,
    units: Units,
    policy: Policy | None = None,
    drag: dict[TrafficClass, float] | None = None,
) -> Record:
    """Return what happens when `units` run `program`.

    `drag` is how much longer compute takes while a transfer of a class is under way on the card
    (0.2: a fifth longer), because the transfer uses its cores and memory bandwidth.
    """
    return Player(program, units, policy or Policy(), drag or {}).run()


class Player:
    """State of one run."""

    def __init__(
        self, program: Program, units: Units, policy: Policy, drag: dict[TrafficClass, float]
    ) -> None:
        self.clock = Clock()
        self.shares = Shares(policy)
        self.policy = policy
        self.drag = drag
        self.record = Record(parts=[{} for _ in range(len(units))])
        self.flows: dict[int, Flow] = {}
        self.launched = 0
        self.ports: list[list[int]] = [[] for _ in range(2 * len(units))]
        self.meeting: dict[tuple[str, tuple[int, ...]], list[tuple[int, Transfer, Target]]] = {}
        self.units = [
            Unit(u, program.rows[r], [s.needs for s in program.rows[r]], float(units.slow_U[u]),
                 float(units.wait_U[u]), {axis: g[u] for axis, g in units.groups.items()},
                 units.peer_U[u])
            for u, r in enumerate(units.rank_U.tolist())
        ]  # fmt: skip
        self.first = program.first
        self.blocking = not program.work.overlap_pp
        self.rank_U = units.rank_U.tolist()

    def run(self) -> Record:
        """Play until nothing is left; every unit has then finished its program."""
        for unit in self.units:
            for transfer, step in self.first[self.rank_U[unit.index]]:
                self.launch(unit, transfer, (unit.index, step), unit.index)
        for unit in self.units:
            self.try_step(unit)
        clock, events, done = self.clock, self.clock.events, 0
        while events:
            event = clock.next()
            assert event is not None
            _, _, what, who, version = event
            done += 1
            if what == COMPUTE:
                unit = self.units[who]
                if unit.version == version:
                    self.compute_done(unit)
            elif what == FLOW:
                flow = self.flows.get(who)
                if flow is not None and flow.version == version:
                    self.finish(who, flow)
            else:
                self.admit(who)
        late = [u.index for u in self.units if u.at < len(u.steps)]
        assert not late, f"units {late[:5]} never finished"
        end = max(unit.ready for unit in self.units)  # the clock may have seen stale events later
        self.record.end = end
        for unit in self.units:
            parts = self.record.parts[unit.index]
            parts["bubble"] = parts.get("bubble", 0.0) + end - unit.ready
        self.record.events = done
        return self.record

    # ---- a unit's program

    def try_step(self, unit: Unit) -> None:
        """Start the next step if all it waits for is there."""
        if unit.at >= len(unit.steps) or unit.needs[unit.at]:
            return
        now = self.clock.now
        unit.running = True
        unit.step_start = now
        idle = now - unit.ready
        if idle > 0.0:
            parts, flow = self.record.parts[unit.index], unit.blamed
            travel = min(idle, now - flow.begun) if flow is not None else 0.0
            if flow is not None and travel > 0.0:
                key = flow.transfer.traffic
                parts[key] = parts.get(key, 0.0) + travel
            parts["bubble"] = parts.get("bubble", 0.0) + idle - travel
        unit.piece = -1
        for transfer, waiter in unit.steps[unit.at].during:
            self.launch(unit, transfer, (unit.index, waiter), unit.index)
        self.next_piece(unit)

    def next_piece(self, unit: Unit) -> None:
        """Start the next piece of the running step, or end the step."""
        step = unit.steps[unit.at]
        now = self.clock.now
        while True:
            unit.piece += 1
            if unit.piece >= len(step.pieces):
                self.end_step(unit, step)
                return
            piece = step.pieces[unit.piece]
            if piece.compute_s > 0.0 or piece.transfers:
                break
        self.start_piece(unit, piece, now)

    def start_piece(self, unit: Unit, piece: Piece, now: float) -> None:
        """Start the compute and the transfers of a piece."""
        unit.piece_start = unit.compute_end = now
        unit.blamed = None
        unit.parts = len(piece.transfers)
        if piece.compute_s > 0.0:
            unit.parts += 1
            unit.compute_left = piece.compute_s * unit.slow
            unit.compute_rate = 1.0 / (1.0 + max(unit.drags)) if unit.drags else 1.0
            unit.compute_since = now
            unit.version += 1
            self.clock.plan(now + unit.compute_left / unit.compute_rate, COMPUTE, unit.index,
                            unit.version)  # fmt: skip
        else:
            unit.compute_left = 0.0
        for transfer in piece.transfers:
            self.launch(unit, transfer, (unit.index, -1), unit.index)

    def compute_done(self, unit: Unit) -> None:
        """The compute of the running piece has ended."""
        now = self.clock.now
        unit.version += 1
        unit.compute_left = 0.0
        unit.compute_end = now
        step = unit.steps[unit.at]
        piece = step.pieces[unit.piece]
        parts = self.record.parts[unit.index]
        whole = now - unit.piece_start
        parts["compute"] = parts.get("compute", 0.0) + piece.compute_s
        parts["slowed"] = parts.get("slowed", 0.0) + whole - piece.compute_s
        self.record.spans.append(
            (unit.index, "compute", unit.piece_start, now, step.name, 0.0, piece.name, -1)
        )
        self.part_done(unit)

    def part_done(self, unit: Unit) -> None:
        """One part of the running piece has ended; with the last, the piece has."""
        unit.parts -= 1
        if unit.parts:
            return
        flow, now = unit.blamed, self.clock.now
        rest = now - unit.compute_end
        if flow is not None and rest > 0.0:
            parts = self.record.parts[unit.index]
            travel = min(rest, now - flow.begun)
            key = flow.transfer.traffic
            parts[key] = parts.get(key, 0.0) + travel
            parts["waiting"] = parts.get("waiting", 0.0) + rest - travel
        self.next_piece(unit)

    def end_step(self, unit: Unit, step: Step) -> None:
        """Send what the step made, start what it allows, go on."""
        now = self.clock.now
        unit.running = False
        unit.ready = now
        unit.blamed = None
        self.record.steps.append((unit.index, unit.at, unit.step_start, now))
        unit.at += 1
        for transfer, waiter in step.after:
            self.launch(unit, transfer, (unit.index, waiter), unit.index)
        for rank, waiter, transfer in step.sends:
            peer = unit.peers[rank]
            if self.blocking:
                unit.needs[unit.at] += 1
            self.launch(unit, transfer, (peer, waiter), peer)
        if not unit.running:
            self.try_step(unit)

    # ---- transfers

    def launch(self, unit: Unit, transfer: Transfer, target: Target, peer: int) -> None:
        """Queue a transfer on its lane; start it when the lane is free."""
        lane: str = transfer.traffic
        if transfer.axis == SELF:
            lane = f"{lane} to {self.rank_U[peer]}"
        if lane in unit.busy:
            unit.lanes.setdefault(lane, deque()).append((transfer, target, peer))
            return
        unit.busy.add(lane)
        self.reach(unit, lane, transfer, target, peer)

    def reach(self, unit: Unit, lane: str, transfer: Transfer, target: Target, peer: int) -> None:
        """The unit has reached the transfer: begin it, or wait for the rest of the group."""
        here = unit.index
        if transfer.axis == SELF:
            targets = [target]
            if self.blocking:
                targets.append((here, unit.at))
            self.begin(transfer, (here,), (2 * here, 2 * peer + 1), targets, lane, unit.wait)
            return
        group = unit.groups[transfer.axis]
        if len(group) == 1:
            self.begin(transfer, group, (2 * here, 2 * here + 1), [target], lane, unit.wait)
            return
        key = (f"{transfer.axis}/{lane}", group)
        met = self.meeting.setdefault(key, [])
        met.append((here, transfer, target))
        if len(met) < len(group):
            return
        del self.meeting[key]
        slowest = max(met, key=lambda m: m[1].seconds)[1]
        ports = tuple(p for u in group for p in (2 * u, 2 * u + 1))
        wait = max(self.units[u].wait for u in group)
        self.begin(slowest, group, ports, [m[2] for m in met], lane, wait)

    def begin(
        self, transfer: Transfer, members: tuple[int, ...], ports: tuple[int, ...],
        targets: list[Target], lane: str, wait: float,
    ) -> None:  # fmt: skip
        """Put a transfer on its ports, after the chunk of a lesser one that is on the wire."""
        seconds = transfer.seconds * wait
        flow = Flow(transfer, members, ports, self.shares.kind_of(transfer.load, transfer.traffic),
                    seconds, targets, lane, self.clock.now, left=seconds)  # fmt: skip
        index = self.launched
        self.launched += 1
        self.flows[index] = flow
        held = self.chunk_left(flow) if self.policy.kind == "strict" else 0.0
        if held > 0.0:
            self.clock.plan(self.clock.now + held, ADMIT, index)
        else:
            self.admit(index)

    def chunk_left(self, flow: Flow) -> float:
        """Seconds until the chunks that lesser transfers have on the wire are through."""
        rank, now, held = self.policy.rank(flow.transfer.traffic), self.clock.now, 0.0
        for port in flow.ports:
            for other in self.ports[port]:
                lesser = self.flows[other]
                t = lesser.transfer
                if self.policy.rank(t.traffic) <= rank or not t.bytes * lesser.seconds:
                    continue
                if not lesser.rate:
                    continue
                if not any(a * b > 0.0 for a, b in zip(t.load, flow.transfer.load, strict=False)):
                    continue
                chunk = min(1.0, self.policy.chunk_bytes / t.bytes) * lesser.seconds
                left = lesser.left - (now - lesser.since) * lesser.rate
                through = (lesser.seconds - left) / chunk
                through -= int(through + BOUNDARY)
                if through > BOUNDARY:
                    held = max(held, min((1.0 - through) * chunk, left) / lesser.rate)
        return held

    def admit(self, index: int) -> None:
        """The transfer is on the wire: rates at its ports change."""
        flow, now = self.flows[index], self.clock.now
        flow.begun = flow.since = now
        alone = True
        for port in flow.ports:
            there = self.ports[port]
            alone = alone and not there
            there.append(index)
        drag = self.drag.get(flow.transfer.traffic, 0.0)
        if drag:
            self.drag_all(flow, drag, True)
        if alone:
            flow.rate = 1.0
            flow.version += 1
            self.clock.plan(now + flow.left, FLOW, index, flow.version)
        else:
            self.reshare(flow, index)

    def reshare(self, flow: Flow, index: int) -> None:
        """Work out the rates of all that share a port with `flow`."""
        touched = {index} if flow.left > 0.0 or flow.rate == 0.0 else set()
        for port in flow.ports:
            touched.update(self.ports[port])
        for i in sorted(touched):
            other = self.flows[i]
            self.set_rate(i, other, self.rate_of(i, other))

    def rate_of(self, index: int, flow: Flow) -> float:
        """The least share that any port gives the transfer."""
        least = 1.0
        for port in flow.ports:
            there = self.ports[port]
            if len(there) > 1:
                rates = self.shares.rates(tuple(self.flows[i].kind for i in there))
                least = min(least, rates[there.index(index)])
        return least

    def set_rate(self, index: int, flow: Flow, rate: float) -> None:
        """Go on at a new rate from now."""
        if rate == flow.rate and flow.version:
            return
        now = self.clock.now
        flow.left = max(0.0, flow.left - (now - flow.since) * flow.rate)
        flow.since, flow.rate = now, rate
        flow.version += 1
        if rate > 0.0:
            self.clock.plan(now + flow.left / rate, FLOW, index, flow.version)

    def finish(self, index: int, flow: Flow) -> None:
        """The transfer has ended: free its ports and lanes, tell those who wait."""
        now, transfer = self.clock.now, flow.transfer
        del self.flows[index]
        shared = False
        for port in flow.ports:
            there = self.ports[port]
            there.remove(index)
            if there:
                shared = True
        drag = self.drag.get(transfer.traffic, 0.0)
        if drag:
            self.drag_all(flow, drag, False)
        if shared:
            others = {i for port in flow.ports for i in self.ports[port]}
            for i in sorted(others):
                other = self.flows[i]
                self.set_rate(i, other, self.rate_of(i, other))
        for member in flow.members:
            self.record.spans.append(
                (member, flow.lane, flow.begun, now, transfer.name, transfer.bytes, transfer.axis,
                 index)
            )  # fmt: skip
        for unit_index, step in flow.targets:
            unit = self.units[unit_index]
            if step < 0:
                unit.blamed = flow
                self.part_done(unit)
            else:
                unit.needs[step] -= 1
                if not unit.running and unit.at == step:
                    unit.blamed = flow
                    self.try_step(unit)
        for member in flow.members:
            self.free_lane(self.units[member], flow.lane)

    def free_lane(self, unit: Unit, lane: str) -> None:
        """Start the next transfer that waits for the lane."""
        queue = unit.lanes.get(lane)
        if queue:
            transfer, target, peer = queue.popleft()
            self.reach(unit, lane, transfer, target, peer)
        else:
            unit.busy.discard(lane)

    def drag_all(self, flow: Flow, drag: float, starts: bool) -> None:
        """Compute on the cards of a transfer slows down, or picks up again."""
        now = self.clock.now
        for member in flow.members:
            unit = self.units[member]
            if starts:
                unit.drags.append(drag)
            else:
                unit.drags.remove(drag)
            if unit.compute_left <= 0.0:
                continue
            rate = 1.0 / (1.0 + max(unit.drags, default=0.0))
            if rate != unit.compute_rate:
                unit.compute_left -= (now - unit.compute_since) * unit.compute_rate
                unit.compute_left = max(unit.compute_left, 0.0)
                unit.compute_since = now
                unit.compute_rate = rate
                unit.version += 1
                self.clock.plan(now + unit.compute_left / unit.compute_rate, COMPUTE, member,
                                unit.version)  # fmt: skip
