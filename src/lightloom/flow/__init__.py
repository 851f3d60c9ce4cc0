"""What moves: clock, max-min shares, flows and phases, folding."""
