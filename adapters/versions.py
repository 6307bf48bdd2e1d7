"""Which versions of other libraries the bridges were tested with."""

from mas_envs.errors import MasEnvsError

__all__ = ["refuse_untested"]

Release = tuple[int, int]
"""Major and minor number."""


def refuse_untested(library: str, version: str, supported: tuple[Release, Release], error: type[MasEnvsError]) -> None:
    """Raise for a version outside the tested range.

    Args:
        library: Its name on PyPI.
        version: Of what is installed, such as `1.16.0`.
        supported: The first release that was tested, and the first that was not any more.
        error: What is raised; its message names the version and the range.
    """
    if not supported[0] <= tuple(int(part) for part in version.split(".")[:2]) < supported[1]:
        low, high = (".".join(map(str, each)) for each in supported)
        raise error(f"{library} {version} was not tested; expected >= {low} and < {high}: install one of those")
