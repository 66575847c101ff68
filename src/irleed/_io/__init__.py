"""Files and text of unknown origin: atomic writes and locks, checked arrays, text made safe to show."""
