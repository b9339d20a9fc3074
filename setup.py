"""Lists the packages; everything else is in pyproject.toml.

setuptools can find packages in a folder or rename folders, but not both at once, and this distribution needs both: see
`tool.setuptools.package-dir` in pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDERS = {"zoo": "zoo", "zoo.registry": "registry", "zoo.converters": "converters"}

setup(
    packages=[
        package
        for name, folder in FOLDERS.items()
        for package in (name, *(f"{name}.{inner}" for inner in find_packages(folder)))
    ]
)
