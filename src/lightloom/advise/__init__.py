"""Profiles, bottlenecks, money, migration."""
