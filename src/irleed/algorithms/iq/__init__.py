"""IRLEED on inverse soft Q-learning; IQ-Learn is its special case."""
