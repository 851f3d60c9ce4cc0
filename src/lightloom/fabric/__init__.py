"""What connects: builders, routes, wavelengths, the physics of light."""
