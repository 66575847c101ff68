"""Policies: predict, save, load."""
