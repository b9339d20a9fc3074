"""What is known of the machine without trying."""

from __future__ import annotations

import os


def memory_of_machine() -> int | None:
    """Ask how much memory the machine has.

    Returns:
        Bytes, or None where the system does not say.
    """
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
