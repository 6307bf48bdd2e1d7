"""Errors and values of others as short printable text, for messages."""

import traceback
from pathlib import Path

__all__ = ["describe_error", "short"]


def describe_error(error: BaseException) -> str:
    """Type, text and innermost place of an error, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {short(str(error))}{place}"


def short(value: object, length: int = 200) -> str:
    """The value as one printable line of at most `length` characters, its middle left out."""
    text = value if isinstance(value, str) else repr(value)
    text = (
        "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[:length] + text[-length:])
        if (len(text) > 2 * length)
        else "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    )
    return text if len(text) <= length else f"{text[: length * 2 // 3]} ... {text[-length // 4 :]}"
