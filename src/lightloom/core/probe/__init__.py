"""Readers of what a machine says about itself: pure text in, facts and a cluster file out."""
