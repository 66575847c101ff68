"""Demonstrators of known precision and bias, and the experts they are made from."""
