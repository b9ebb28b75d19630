"""Builds the compiled form where there is a compiler; without one the plain-Python form is all there is."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [
        Extension(
            "flowjoin_conntrack._compiled",
            ["src/flowjoin_conntrack/_compiled.pyx"],
            extra_compile_args=["-O3", *os.environ.get("FLOWJOIN_CFLAGS", "").split()],
            extra_link_args=os.environ.get("FLOWJOIN_LDFLAGS", "").split(),
        )
    ],
    build_dir="build",
)
for extension in extensions:
    extension.optional = True  # here: cythonize makes extensions anew, without it

setup(ext_modules=extensions)
