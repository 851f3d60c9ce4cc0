"""Scenarios on step and flow."""
