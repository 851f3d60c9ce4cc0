"""Losing a card: states, transitions, policies; pure (no clock, no socket, no torch).

`record` holds the nouns and quorums, `decide` what to do with a loss, `view` what an agent knows,
`protocol` its state machine, `suspect` when a silent rank is hung, `simulate` seeded schedules of
everything that can go wrong. The same functions drive a real job (lightloom.run) and the twin.
"""
