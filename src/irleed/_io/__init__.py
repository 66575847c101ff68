"""Files and foreign text: written whole or not at all, locked, read with suspicion, shown safely."""
