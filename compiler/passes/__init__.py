"""Graph passes, one pure function per module."""
