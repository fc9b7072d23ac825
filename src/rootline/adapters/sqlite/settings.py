"""The settings of an embedded log: `ROOTLINE_EMBEDDED_LOG__*`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rootline.adapters.sqlite.pruning_state import LogRetention


class EmbeddedLogSettings(BaseModel):
    """How long the log keeps what was decided. The host of the coordinator deletes what is older."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    records_retention_s: float = Field(
        default=604_800.0,
        ge=60,
        description="An intent and its verdict stay at least so long after the verdict; undecided ones always stay.",
    )
    dead_letters_retention_s: float = Field(
        default=2_592_000.0,
        ge=60,
        description="A rejected intent, its verdict and its dead letter stay at least so long after the verdict.",
    )

    @model_validator(mode="after")
    def _dead_letters_stay_as_long_as_records(self) -> EmbeddedLogSettings:
        if self.dead_letters_retention_s < self.records_retention_s:
            raise ValueError("dead_letters_retention_s must not be shorter than records_retention_s")
        return self

    @property
    def retention(self) -> LogRetention:
        """In the log's units."""
        return LogRetention(int(self.records_retention_s * 1000), int(self.dead_letters_retention_s * 1000))
