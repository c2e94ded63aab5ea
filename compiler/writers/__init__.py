"""Writers that turn graphs into model files."""
