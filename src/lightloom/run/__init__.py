"""Real training; torch lives only here."""
