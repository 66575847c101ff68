"""Maximum-entropy IRL and IRLEED in finite MDPs."""
