"""Analyses of a fit and of data.

- `statistics`: bootstrap intervals, rank correlations, trivial statistics of demonstrators.
- `validation`: agreement of estimates with scores that the user has.
- `curation`: weights of frames and episodes, and filtered files, for training other policies.
- `departures`: where demonstrators depart from the shared policy.
- `recordings`: films of an episode.
"""
