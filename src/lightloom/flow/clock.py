"""The event clock: what happens next, in one total order, so that a run repeats byte for byte."""

from __future__ import annotations

import heapq

Event = tuple[float, int, int, int, int]
"""(seconds, order of planning, kind of event, subject, version of the subject when planned)."""


class Clock:
    """A heap of events. Events at one time come out in the order in which they were planned.

    Kind and subject are the planner's own numbers; an event whose subject has moved on to another
    version is stale, and the planner drops it.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events: list[Event] = []
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
        event = heapq.heappop(self.events)
        self.now = event[0]
        return event
