"""What settings are made of: sections that refuse unknown keys, and kinds of numbers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Count", "Positive", "Section", "Share"]

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Settings that belong together; keys it does not know are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
