"""The run directory: its layout, checkpoints, logs, and the one reader of it."""
