"""Environments: finite MDPs, environments in JAX, environments on the host."""
