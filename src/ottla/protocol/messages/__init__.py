"""One module per API, named as Kafka names it in snake case: its request, its response, and their parts.

The docstring of each module says what the API is for and what changed in which version. The versions are those of Kafka 3.9 and
4.3 together; what a broker serves of them is its own choice.
"""
