"""Scenarios: each world runs brokers or logs through seeded faults and checks them."""
