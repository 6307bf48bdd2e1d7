"""Doctests of adapters whose foreign library is not installed are left out; those libraries are extras."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("ray") else ["adapters/rllib/*"]
