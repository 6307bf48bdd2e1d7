"""The conformance checks behind `mas_envs.check_env`, one idea a file; `mas_envs.checker` lists and runs them."""
