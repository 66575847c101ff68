"""What follows from a fit.

- `curation`: weights of frames and episodes, and filtered files, for whoever trains with the data next.
- `departures`: where demonstrators depart from the shared policy.
- `recordings`: films of an episode.
"""
