"""Bugs planted on purpose, one at a time, to prove that the checkers see them."""
