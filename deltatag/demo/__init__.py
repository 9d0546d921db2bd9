"""The demonstration: a lake of real flights, tagged, edited and tagged again, told step by step."""

from __future__ import annotations

from pathlib import Path


def demo(folder: str, verbose: bool = False, force: bool = False) -> int:
    """Make the demonstration's lake in `folder` and tell on standard output what happens; gives the exit status.

    What an earlier demonstration left in the folder is made anew; if it was edited since, only with `force` or where
    the person at the terminal says so. ConfigurationError where it stays, and for a folder with anything else in it.
    """
    from deltatag.demo.story import Story

    return Story(Path(folder), verbose, force).tell()
