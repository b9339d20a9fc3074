"""Facts about this machine's processor."""

from pathlib import Path


def processor_facts() -> dict[str, str]:
    """Linux's facts about the first processor, by name; empty elsewhere."""
    info = Path("/proc/cpuinfo")
    facts: dict[str, str] = {}
    for line in info.read_text(encoding="utf-8").splitlines() if info.exists() else []:
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    return facts
