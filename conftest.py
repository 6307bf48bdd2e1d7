"""Doctests of adapters whose foreign library is not installed are left out; those libraries are extras."""

import importlib.util

_FILES = {"ray": "adapters/rllib/*", "verifiers": "adapters/verifiers.py", "openenv": "adapters/openenv.py"}

collect_ignore_glob = [files for library, files in _FILES.items() if not importlib.util.find_spec(library)]
