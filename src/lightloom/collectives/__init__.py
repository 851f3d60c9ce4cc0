"""What is said: algorithms as phases of flows, and which is best when."""
