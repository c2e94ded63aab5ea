"""The demo network and the labelled images that it classifies."""
