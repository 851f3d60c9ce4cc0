"""One function per view."""
