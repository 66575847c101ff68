"""Experts trained on the true reward, from which demonstrators are simulated."""
