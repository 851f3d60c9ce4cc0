"""One thin module per verb, loaded lazily."""
