"""Services that copy tensors between ranks."""

from stepvan.resharding.copy_services.base import CopyService
from stepvan.resharding.copy_services.stepvan import StepvanCopyService

__all__ = ["CopyService", "StepvanCopyService"]
