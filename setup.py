"""Lists the packages and writes the long description; everything else is in pyproject.toml.

setuptools can find packages in a folder or rename folders, but not both at once, and this distribution needs both: see
`tool.setuptools.package-dir` in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
FOLDERS = {"zoo": "zoo", "zoo.registry": "registry", "zoo.converters": "converters"}


def long_description() -> str:
    """README.md with links that lead somewhere from a package index: to the files of this version in the repository."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    name = re.findall(r'^Repository = "https://github.com/(.+)"$', project, flags=re.MULTILINE)[0]
    version = re.findall(r'^version = "(.+)"$', project, flags=re.MULTILINE)[0]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r'(?<=src=")(?![a-z]+:)', f"https://raw.githubusercontent.com/{name}/v{version}/", text)
    return re.sub(r"(?<=\]\()(?![a-z]+:|#)", f"https://github.com/{name}/blob/v{version}/", text)


setup(
    packages=[
        package
        for name, folder in FOLDERS.items()
        for package in (name, *(f"{name}.{inner}" for inner in find_packages(folder)))
    ],
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
