"""The nouns: pure frozen data."""
