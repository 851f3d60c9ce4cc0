"""A toy training job whose true step time under any change is known."""

from dataclasses import dataclass, field, replace

from lightloom.core.timeline import COMM, COMPUTE, Timeline
from lightloom.core.timeline_file import Span, timeline_of


@dataclass(frozen=True)
class Toy:
    ranks: int = 4
    steps: int = 3
    layers: int = 8
    forward_us: float = 300.0
    backward_us: float = 600.0
    optimizer_us: float = 400.0
    host_us: float = 5.0
    """Gap before each kernel."""
    bucket: int = 2
    """Layers of one gradient all-reduce, which runs beside the backward pass."""
    tensor: bool = False
    """An all-reduce of activations after each layer, in the way of the next."""
    bytes_: float = 4e6
    """Gradient bytes of a layer."""
    bandwidth: float = 1e4
    """Bytes per microsecond."""
    latency_us: float = 20.0
    slow: dict[int, float] = field(default_factory=dict)
    """Rank -> factor on its computing."""
    jitter: tuple[float, ...] = ()
    """Factors on computing, one a (rank + step), repeated."""


def play(toy: Toy) -> tuple[dict[int, Timeline], float]:
    """Return the timelines and the mean window, microseconds."""
    now = [0.0] * toy.ranks
    wire = [0.0] * toy.ranks
    spans: dict[int, list[Span]] = {r: [] for r in range(toy.ranks)}

    def add(r: int, a: float, b: float, lane: str, kind: int, name: str, size: float = 0) -> None:
        spans[r].append(Span(round(a * 1000), round(b * 1000), r, lane, kind, name, int(size)))

    def work(r: int, took: float, name: str, step: int) -> None:
        factor = toy.slow.get(r, 1.0)
        if toy.jitter:
            factor *= toy.jitter[(r + step) % len(toy.jitter)]
        start = now[r] + toy.host_us
        now[r] = start + took * factor
        add(r, start, now[r], "compute", COMPUTE, name)

    def reduce(name: str, size: float) -> list[float]:
        arrive = [max(now[r] + 1.0, wire[r]) for r in range(toy.ranks)]
        end = max(arrive) + toy.latency_us + size / toy.bandwidth
        for r in range(toy.ranks):
            add(r, arrive[r], end, "wire", COMM, name, size)
            wire[r] = end
        return [end] * toy.ranks

    for step in range(toy.steps):
        for layer in range(2 * toy.layers):
            back = layer >= toy.layers
            for r in range(toy.ranks):
                work(r, toy.backward_us if back else toy.forward_us, "layer", step)
            if toy.tensor:
                ends = reduce("allreduce_tp", toy.bytes_ / 8)
                now = [max(n, e) for n, e in zip(now, ends, strict=True)]
            if back and (layer + 1) % toy.bucket == 0:
                reduce("allreduce_dp", toy.bytes_ * toy.bucket * (1 + 0.5 * (layer % 3)))
        now = [max(n, w) for n, w in zip(now, wire, strict=True)]
        for r in range(toy.ranks):
            work(r, toy.optimizer_us, "optimizer", step)
    timelines = {r: timeline_of(spans[r], source="toy") for r in range(toy.ranks)}
    ends = [(int(t.end_N.max()) - int(t.start_N.min())) / 1000 for t in timelines.values()]
    return timelines, sum(ends) / len(ends)


def faster(toy: Toy, factor: float) -> Toy:
    return replace(toy, bandwidth=toy.bandwidth * factor)
