"""Evaluation: likelihoods, CORE, and a model for EleutherAI's lm_eval."""

from lm.evaluation.core import CoreScore, CoreTask, evaluate_core, read_core
from lm.evaluation.likelihood import Likelihood, Request, likelihoods

__all__ = ["CoreScore", "CoreTask", "Likelihood", "Request", "evaluate_core", "likelihoods", "read_core"]
