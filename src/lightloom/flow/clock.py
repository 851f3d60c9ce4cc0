"""The event clock: what happens next, in one total order, so that a run repeats byte for byte."""

from __future__ import annotations

import heapq
from typing import NamedTuple


class Event(NamedTuple):
    """Something that happens: ordered by time, then by when it was planned."""

    at: float
    """Seconds."""
    order: int
    what: int
    """Kind of event, the planner's own code."""
    who: int
    """Subject of the event."""
    version: int
    """Planner's counter of the subject: an event whose subject has moved on is stale."""


class Clock:
    """A heap of events. Events at one time come out in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[tuple[float, int, int, int, int]] = []
        self._order = 0

    def plan(self, at: float, what: int, who: int, version: int = 0) -> None:
        """Plan an event at `at` seconds; never before now."""
        assert at >= self.now, f"event planned at {at}, the clock is at {self.now}"
        self._order += 1
        heapq.heappush(self.events, (at, self._order, what, who, version))

    def next(self) -> Event | None:
        """Advance to the earliest event and return it; None when nothing is planned."""
        if not self.events:
            return None
        event = Event(*heapq.heappop(self.events))
        self.now = event.at
        return event
