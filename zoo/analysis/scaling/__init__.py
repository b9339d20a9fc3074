"""Training on more than one device, on paper: strategies, memory, speed at most, and the command."""

from .devices import DEVICES, Device, find_device
from .planning import Plan, plan
from .strategies import Memory, Strategy

__all__ = ["DEVICES", "Device", "Memory", "Plan", "Strategy", "find_device", "plan"]
