"""Builds the compiled kernel where there is a compiler; without one the plain-Python kernel is all there is."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

COMPILE = ["-O3", *os.environ.get("FLOWJOIN_CFLAGS", "").split()]
LINK = os.environ.get("FLOWJOIN_LDFLAGS", "").split()

extensions = cythonize(
    [
        Extension(
            f"flowjoin.{name}",
            [f"src/flowjoin/{name.replace('.', '/')}.pyx"],
            include_dirs=["src/flowjoin/_kernel"],
            depends=[f"src/flowjoin/_kernel/compiled/{header}.h" for header in ("octets", "pages", "writing")],
            extra_compile_args=COMPILE,
            extra_link_args=LINK,
        )
        for name in ("_kernel._compiled", "_kernel._writers", "_collector._recvmmsg")
    ],
    build_dir="build",
)
for extension in extensions:
    extension.optional = True  # here: cythonize makes extensions anew, without it

# Extensions build beside one another: whoever installs waits for the longest alone.
setup(ext_modules=extensions, options={"build_ext": {"parallel": True}})
