"""`python -m zoo` is `zoo`."""

from zoo.cli.main import main

main()
