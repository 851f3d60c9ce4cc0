"""Losing a card: states, transitions, policies; pure."""
