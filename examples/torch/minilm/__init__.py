"""all-MiniLM-L6-v2 as plain torch modules, in one piece and in two halves.

``MiniLM`` is the whole encoder. ``AttentionHalf`` and ``FFNSlice`` are the same parameters
cut in two, for the workers and the servers of a disaggregated run. ``AttentionHalf`` has
embeddings, self-attention, both layer norms and pooling. ``FFNSlice`` has a part of every
feed-forward net. The sum of all slices' answers is the answer of the whole net.

Activations are float32 ``[tokens, hidden]``: the tokens of a batch's sentences
behind each other, without padding. Modules keep no state between calls but their
parameters; call them under ``torch.no_grad``.
"""

from .attention import AttentionHalf
from .batch import Batch, pack
from .config import Config
from .ffn import FFNSlice
from .files import Files, ModelUnavailable, fetch, find
from .sentences import sentences, share
from .tokenizer import Tokenizer
from .whole import MiniLM

__all__ = [
    "AttentionHalf",
    "Batch",
    "Config",
    "FFNSlice",
    "Files",
    "MiniLM",
    "ModelUnavailable",
    "Tokenizer",
    "fetch",
    "find",
    "pack",
    "sentences",
    "share",
]
