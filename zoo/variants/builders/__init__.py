"""The code of variants that settings do not describe, imported when one of them is built."""
