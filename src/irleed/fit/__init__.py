"""The front door: demonstrations in; a policy, expertise and reward out."""
