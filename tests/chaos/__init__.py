"""Real processes, killed and frozen at chosen and at random moments. Marker `chaos`."""
