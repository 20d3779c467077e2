"""The functions of the module ``fserver_lib``, in the place where programs of some forks of StepMesh look for them."""

from fserver_lib import *  # noqa: F403
from fserver_lib import __all__ as __all__
