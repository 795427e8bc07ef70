"""All that pyproject.toml can't say: an editable install takes the data files along.

setuptools asks for `has_data` there, which no class has, and so leaves them out.
"""

from setuptools import Distribution, setup


class WithDataFiles(Distribution):
    """This distribution."""

    has_data = Distribution.has_data_files


setup(distclass=WithDataFiles)
