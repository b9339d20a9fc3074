"""Training on more than one device, on paper: strategies, memory, speed at most, and the command."""

from .planning import Plan, plan
from .strategies import DEVICES, Device, Memory, Strategy, find_device

__all__ = ["DEVICES", "Device", "Memory", "Plan", "Strategy", "find_device", "plan"]
