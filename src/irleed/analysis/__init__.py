"""What follows from a fit: curation, departures from the shared policy, recordings."""
