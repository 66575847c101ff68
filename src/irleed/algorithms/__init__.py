"""Algorithms: IRLEED and its special cases in finite MDPs and with networks, baselines, experts."""
