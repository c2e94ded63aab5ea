"""Search for tilings and chains with the simulator as judge, and the cache of what it found."""
