"""The distribution of the library: its name on a package index, its version, and the command to install it.

`rootline` belongs to another project on the public index, so only the import package and the command have that name.

Source: docs/decisions/0112.
"""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "rootline-lake"
VERSION = "0.1.0"  # the build reads it here
__version__: Final = VERSION
LAST_THAT_UPGRADES: Final = "caa9e5f4"
"""The last commit with `rootline upgrade`, which converts logs of the first release."""


def install_command(extra: str) -> str:
    """The command that installs the libraries of an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
