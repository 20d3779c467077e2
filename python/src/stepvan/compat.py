"""Lets programs import parts of stepvan under the names of the packages that they were written for::

    import stepvan.compat

    stepvan.compat.install("etha", "push")
    from etha.tensor_bus.commands import InitPair  # the class of stepvan.tensor_bus.commands
    from push.lib.messages import MSG

A module has the same content, and is the same object, under both names. Every process of a program calls ``install``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from stepvan._errors import InvalidError, cut

__all__ = ["install", "uninstall"]

_lib = ("context_switch", "messages", "node_event_loop", "utils", "waitable")
_packages: dict[str, dict[str, str]] = {
    "core": {"core.resharding": "stepvan.resharding"},
    "etha": {"etha.tensor_bus": "stepvan.tensor_bus"},
    "push": {
        **{f"push.lib.{name}": f"stepvan.particles.{name}" for name in _lib},
        **{f"push.{name}": f"stepvan.particles.{name}" for name in ("particle", "pfuture", "push")},
    },
    "unilab": {"unilab.ipc.replay_pipelines": "stepvan.replay_pipelines"},
}
"""What each package has: names, and the modules that they mean. The modules within these are found under both names."""


def install(*names: str) -> None:
    """Makes packages importable: "core" (core.resharding), "etha", "push" or "unilab". A further call changes nothing.

    InvalidError: stepvan has no part of such a package; or a package of that name can be imported here, which stays as
    it is. Then none of the names was installed.
    """
    chosen = [name for name in names if name not in _finder.names]
    for name in chosen:
        if name not in _packages:
            raise InvalidError(f"install: {cut(name)}: stepvan has no part of it: give {', '.join(sorted(_packages))}")
        place = _place(name)
        if place is not None:
            raise InvalidError(f"install: {name}: there is a package of that name ({place}): use that one, or uninstall it before")
    _finder.names |= set(chosen)
    if _finder.names and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)  # the finder of paths would load the modules of a package a second time


def uninstall(*names: str) -> None:
    """Takes packages back that ``install`` has made importable. What was imported stays valid."""
    for name in names:
        if name in _finder.names:
            _finder.names.remove(name)
            for loaded in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
                del sys.modules[loaded]
    if not _finder.names and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _place(name: str) -> str | None:
    """Where the package is that a program would import under a name; None: nowhere."""
    if name in sys.modules:
        return str(getattr(sys.modules[name], "__file__", None) or "loaded already")
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    return spec.origin or ", ".join(map(str, spec.submodule_search_locations or ())) or "found by a loader"


class _Finder(MetaPathFinder):
    """Finds what was installed."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in self.names:
            return None
        for name, module in _packages[package].items():
            if name.startswith(f"{fullname}."):
                return ModuleSpec(fullname, _Empty(), is_package=True)
            if fullname == name or fullname.startswith(f"{name}."):
                meant = module + fullname[len(name) :]
                found = importlib.util.find_spec(meant)
                if found is not None:
                    return ModuleSpec(fullname, _Same(meant), is_package=found.submodule_search_locations is not None)
        return None


class _Empty(Loader):
    """Makes the packages above what stepvan has."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"A part of stepvan under the name of {module.__name__}: see stepvan.compat."


class _Same(Loader):
    """Gives a module of stepvan a second name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it by that of the second name


_finder = _Finder()
