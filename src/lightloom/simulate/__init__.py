"""One step, played: schedules, overlap, priorities, jitter, faults, on a timeline."""
