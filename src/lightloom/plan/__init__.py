"""The search over strategies."""
