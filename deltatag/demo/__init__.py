"""The demonstration: real flights are tagged, rules are edited, new flights are tagged, with step-by-step output."""

from __future__ import annotations

from pathlib import Path


def demo(folder: str, verbose: bool = False, force: bool = False) -> int:
    """Create the demonstration's lake in `folder` and print what happens; returns the exit status.

    An earlier demonstration in the folder is replaced; if it was edited since, only with `force`, or if the user at the
    terminal agrees. ConfigurationError if it must not be replaced, or if the folder contains anything else.
    """
    from deltatag.demo.story import Story

    return Story(Path(folder), verbose, force).tell()
