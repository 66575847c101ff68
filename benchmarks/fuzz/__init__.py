"""Hostile files of every format that is read, made from a seed, and a harness that counts what readers do with them."""
