"""The package of StepMesh that newer programs import: ``import fserver.fserver_lib as f``. All is in ``fserver_lib``."""

import fserver_lib as f

__all__ = ["f"]
