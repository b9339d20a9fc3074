"""Why a target does not express a model: for one of three reasons."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Reason(Enum):
    """Where an obstacle lies, in the order in which they are named."""

    ENGINE = "the engine cannot"
    WRITER = "the zoo has no writer yet"
    SETTING = "this setting differs"


class Obstacle(str):
    """A phrase that names what keeps a model from a target, and the reason.

    Args:
        phrase: The phrase.
        reason: Where it lies; None where a plugin gives none.
    """

    reason: Reason | None

    def __new__(cls, phrase: str, reason: Reason | None = None) -> Obstacle:
        """Make a phrase with a reason."""
        found = super().__new__(cls, phrase)
        found.reason = reason
        return found


def because(reason: Reason, phrases: Iterable[str]) -> list[str]:
    """Give phrases a reason, but for those that have one."""
    return [phrase if isinstance(phrase, Obstacle) else Obstacle(phrase, reason) for phrase in phrases]


def reason_of(phrase: str) -> str:
    """The reason of an obstacle, empty where there is none."""
    reason: Reason | None = getattr(phrase, "reason", None)
    return reason.value if reason else ""


def explained(obstacles: Iterable[str]) -> str:
    """One line of all obstacles, grouped by their reasons."""
    grouped: dict[str, list[str]] = {reason: [] for reason in ("", *(reason.value for reason in Reason))}
    for obstacle in obstacles:
        grouped[reason_of(obstacle)].append(obstacle)
    return "; ".join(f"{reason}: {'; '.join(found)}".removeprefix(": ") for reason, found in grouped.items() if found)
