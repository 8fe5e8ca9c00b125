"""`accounting optimal`: parameters and tokens that compute is best spent on, by every law."""

from __future__ import annotations

import argparse

from accounting.commands.tables import Answer, columns, wrapped
from accounting.planning.scaling import LAWS, compute_optimal, formula


def optimal(options: argparse.Namespace) -> Answer:
    """Parameters and tokens that compute is best spent on, by every law."""
    answers = [compute_optimal(options.compute, parameters=options.parameters, law=law) for law in LAWS]
    table = [("law", "FLOPs", "parameters", "tokens", "tokens/parameter", "loss")]
    table += [
        (
            answer.law,
            f"{float(answer.compute):.3g}",
            f"{float(answer.parameters):.3g}",
            f"{float(answer.tokens):.3g}",
            f"{answer.tokens_per_parameter:.1f}",
            "" if answer.loss is None else f"{answer.loss:.3f}",
        )
        for answer in answers
    ]
    records = [
        {
            "law": answer.law,
            "FLOPs": int(answer.compute),
            "parameters": int(answer.parameters),
            "tokens": int(answer.tokens),
            "loss": answer.loss,
            "warning": answer.warning,
            "convention": answer.convention,
        }
        for answer in answers
    ]
    page = [columns(table), *(f"warning: {one.warning}" for one in answers if one.warning)]
    if options.explain:
        page += [wrapped(f"{one.law}: {formula(one.law)}; {one.convention}") for one in answers]
    return Answer("\n".join(page), records)
