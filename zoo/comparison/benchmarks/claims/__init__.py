"""Claims of papers as sentences that recorded rows can refute, and their verdicts."""

from .calibration import Calibration, calibrate
from .contrast import Claim, Contrast, read_claims
from .judging import Finding, Outcome, claims, claims_about

__all__ = [
    "Calibration",
    "Claim",
    "Contrast",
    "Finding",
    "Outcome",
    "calibrate",
    "claims",
    "claims_about",
    "read_claims",
]
