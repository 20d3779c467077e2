"""Builds libstepvan.so from the repository around this folder, or inside it in a source archive, and the extension."""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # build backends do not add it

from build_library import REPOSITORY, archive, build, glibc_need, version_of  # noqa: E402

BUILT = HERE / "build" / "lib"


class BuildExtension(build_ext):
    """Puts the library beside the extension, which loads it at the first use (csrc/lazy.c)."""

    def build_extension(self, ext: Extension) -> None:
        library = build(BUILT)
        ext.include_dirs.append(str(REPOSITORY / "capi"))
        super().build_extension(ext)
        shutil.copy2(library, Path(self.get_ext_fullpath(ext.name)).parent / library.name)


class Wheel(bdist_wheel):
    """Names the C library that the wheel needs: manylinux with the version that its files ask for."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        if platform.startswith("linux_"):
            major, minor = glibc_need(Path(self.bdist_dir).glob("stepvan/*.so"))
            platform = f"manylinux_{major}_{minor}_{platform.removeprefix('linux_')}"
        return python, abi, platform


class Archive(sdist):
    """A source archive with the sources of the library."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        archive(Path(base_dir), BUILT / "libstepvan.so")


VERSION = version_of(build(BUILT))

setup(
    version=VERSION,
    cmdclass={"build_ext": BuildExtension, "bdist_wheel": Wheel, "sdist": Archive},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    ext_modules=[
        Extension(
            "stepvan._core",
            sources=sorted(str(p.relative_to(HERE)) for p in (HERE / "csrc").glob("*.c")),
            depends=[str(p.relative_to(HERE)) for p in (HERE / "csrc").glob("*.h")],
            libraries=["dl"],
            define_macros=[("STEPVAN_WHEEL_VERSION", f'"{VERSION}"')],
            extra_compile_args=["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"]
            + ["-Wno-unused-parameter", "-Wno-missing-field-initializers"],
            py_limited_api=True,
        )
    ],
)
