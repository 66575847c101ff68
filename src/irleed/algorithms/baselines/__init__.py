"""Baselines: behaviour cloning, ILEED, SQIL."""
