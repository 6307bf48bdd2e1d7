"""Installs a package into a fresh virtual environment and runs commands there."""

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
_MAIN = "from mas_envs.cli import main; main()"


def install_in_fresh_environment(package: Path, folder: Path) -> Path:
    """pip-install a package; returns the interpreter.

    The environment sees the packages of this interpreter through a .pth file, so that nothing is downloaded.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "parent.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_paths()['purelib']}\n")
    source = shutil.copytree(package, folder / "source")  # a build leaves files beside what it builds
    options = ["--quiet", "--no-build-isolation", "--no-deps"]
    command = [str(python), "-m", "pip", "install", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return python


def mas_envs_command(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mas-envs` with these arguments under an interpreter."""
    environment = {**os.environ, "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    command = [str(python), "-c", _MAIN, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=python.parent)
