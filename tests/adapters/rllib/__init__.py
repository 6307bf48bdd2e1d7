"""Tests of the RLlib adapter; most run without starting Ray."""
