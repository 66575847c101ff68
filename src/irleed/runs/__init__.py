"""The run directory.

- `directory`: its layout, written atomically, and its JSON files; `checkpoint`: checkpoints; `logging`: metrics.
- `results`: results.json of experiments and validation.json; `reader`: reads all of a run.
"""
