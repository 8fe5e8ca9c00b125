"""Evaluation on questions, last words and texts, with standard errors."""

from lm.evaluation.core import CoreScore, CoreTask, evaluate_core, read_core
from lm.evaluation.likelihood import Likelihood, Request, likelihoods
from lm.evaluation.results import Result, as_json, as_table
from lm.evaluation.run_tasks import evaluate_tasks
from lm.evaluation.tasks import Item, Task, read_task

__all__ = [
    "CoreScore",
    "CoreTask",
    "Item",
    "Likelihood",
    "Request",
    "Result",
    "Task",
    "as_json",
    "as_table",
    "evaluate_core",
    "evaluate_tasks",
    "likelihoods",
    "read_core",
    "read_task",
]
