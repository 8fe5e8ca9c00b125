"""Other libraries that encode by this one: bpe.integrations.engines, .datatrove, .transformers, .vllm."""

from bpe.native.lazy_imports import lazy_modules

__getattr__ = lazy_modules(__name__, "datatrove engines transformers vllm")
