"""Builds the compiled forms where there is a compiler; without one the plain-Python forms are all there is."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [
        Extension(
            f"flowjoin_conntrack.{name}",
            [f"src/flowjoin_conntrack/{name}.pyx"],
            include_dirs=["src/flowjoin_conntrack"],
            extra_compile_args=["-O3", *os.environ.get("FLOWJOIN_CFLAGS", "").split()],
            extra_link_args=os.environ.get("FLOWJOIN_LDFLAGS", "").split(),
        )
        for name in ("_compiled_netlink", "_compiled_table")
    ],
    build_dir="build",
)
for extension in extensions:
    extension.optional = True  # here: cythonize makes extensions anew, without it

setup(ext_modules=extensions, options={"build_ext": {"parallel": True}})
