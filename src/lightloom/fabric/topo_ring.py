"""What the closing light of a ring is worth: all-reduce with and without it."""

from __future__ import annotations

from dataclasses import dataclass

from lightloom.core.errors import InputError


@dataclass(frozen=True, slots=True)
class RingPath:
    """One all-reduce of `bytes` over `ranks` neighbours in a row."""

    ranks: int
    bytes: float
    closed_s: float
    """Ring with its closing path: every step is one hop."""
    open_s: float
    """The last rank reaches the first through all others, in every step."""
    reversed_s: float
    """Without the closing path, the better way: reduce along the row to one end and send back,
    from both ends at once."""

    @property
    def slower(self) -> float:
        """Extra all-reduce time without the closing path, the better of both ways."""
        return min(self.open_s, self.reversed_s) / self.closed_s - 1.0


def ring_path(
    ranks: int, payload: float, hop_s: float, bandwidth: float, step_s: float
) -> RingPath:
    """Return all-reduce times of a row of `ranks` with one `bandwidth` (bytes/s) per direction.

    Ring: 2 (n-1) steps of payload/n; the step time is the slowest hop, with the closing path
    `step_s + hop_s + part/bandwidth`, without it the closing message passes n-1 hops (cut-through:
    it pays n-1 latencies, one serialisation). Row: reduce and broadcast of both halves, pipelined
    in n parts: 2 (n-1) steps of payload/2 in n parts each way.
    `step_s`: fixed cost of one step at the ranks (launch, synchronisation).
    """
    if ranks < 2 or payload <= 0 or bandwidth <= 0:
        raise InputError(f"an all-reduce of {payload:g} bytes over {ranks} ranks is none")
    part = payload / ranks / bandwidth
    closed = 2 * (ranks - 1) * (step_s + hop_s + part)
    opened = 2 * (ranks - 1) * (step_s + (ranks - 1) * hop_s + part)
    pieces = ranks
    piece = payload / 2 / pieces / bandwidth
    row = 2 * (ranks - 1 + pieces - 1) * (step_s + hop_s + piece)
    return RingPath(ranks, payload, closed, opened, row)
