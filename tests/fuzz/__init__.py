"""Bounded fuzzing of everything that parses bytes from outside."""
