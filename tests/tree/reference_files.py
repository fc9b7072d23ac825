"""What the reference model knows of a data file and of an equality delete."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class File:
    """A live data file. `vector` names its deletion vector: the intent that wrote it, or that it was merged for.

    `carrier`: its partition; `None`: it is of the spec without partitions.

    `number`: how old its rows are; `came`: when it last came, which a restore makes newer. `vector_number`: likewise.
    `converted`: how old the vector says to be since a conversion; `None`: as old as it is.
    `leaf`, `vector_leaf`: the leaf that holds it, named by the intent that brought the leaf; `None`: the root does.
    """

    ids: tuple[int, ...]
    carrier: str | None
    number: int
    first_row_id: int
    deleted: set[int] = field(default_factory=set)
    vector: str | None = None
    vector_number: int = 0
    leaf: str | None = None
    vector_leaf: str | None = None
    came: int = -1
    converted: int | None = None

    def __post_init__(self) -> None:
        self.came = self.number if self.came < 0 else self.came

    @property
    def rows_left(self) -> int:
        """When the newest of the rows left that the vector deletes: a conversion makes none leave."""
        return self.vector_number if self.converted is None else self.converted

    @property
    def in_root(self) -> bool:
        return self.leaf is None


@dataclass
class EqualityDelete:
    """Deletes the rows whose id is `value` from older files of `carrier`; `None`: of every carrier."""

    value: int
    carrier: str | None
    number: int
    leaf: str | None = None
    came: int = -1

    def __post_init__(self) -> None:
        self.came = self.number if self.came < 0 else self.came
