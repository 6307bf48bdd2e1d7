"""Settings of every test session: few threads, no network, no deadlines on a shared machine."""

import os

from hypothesis import settings

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before numpy and torch are imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
