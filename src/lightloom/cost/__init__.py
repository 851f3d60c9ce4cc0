"""What it costs: closed form, vectorised, calibrated on measurements."""
