"""All that pyproject.toml can't say: an editable install takes the data files along, and a build notes its commit.

setuptools asks for `has_data` there, which no class has, and so leaves them out.
"""

import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

NOTE = Path("asd", "commit.txt")
GIT = ("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")


def commit() -> str:
    """Returns the commit of these sources: that of the checkout, or of the sdist or the image's build they are in."""
    if Path(".git").exists():
        return subprocess.run(GIT, capture_output=True, text=True, check=True).stdout.strip()
    return NOTE.read_text() if NOTE.is_file() else ""


class WithDataFiles(Distribution):
    """This distribution."""

    has_data = Distribution.has_data_files


class BuildPy(build_py):
    """Copies the packages, with a note of the commit; an editable install finds it out by itself."""

    def run(self) -> None:
        """Copies them."""
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, NOTE).write_text(commit())


class Sdist(sdist):
    """Packs the sources, with the same note."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Brings them together."""
        super().make_release_tree(base_dir, files)
        Path(base_dir, NOTE).write_text(commit())


setup(distclass=WithDataFiles, cmdclass={"build_py": BuildPy, "sdist": Sdist})
