"""The contract between hardware and software: configuration, instructions, semantics, timing."""
