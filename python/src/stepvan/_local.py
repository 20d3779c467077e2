"""Objects that belong to one process."""

from typing import Any, NoReturn, SupportsIndex


class Local:
    """The base of objects that name something of this process: a copy would be useless in another process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self._refuse()

    def __copy__(self) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"{name}: it belongs to this process and cannot be pickled or copied: start a stepvan.Node in the other process")
