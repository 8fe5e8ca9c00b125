"""A line of a file of JSON lines."""

from __future__ import annotations

from typing import Any, NoReturn

from bpe.native.lazy_imports import json


def parse_line(line: bytes, file: str, number: int) -> Any:
    """The value on a line. ValueError that names the file and the line where it is not JSON."""

    def refuse(reason: str) -> NoReturn:
        raise ValueError(f"{file}, line {number}: {reason}") from None

    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        refuse(f"not JSON: {error.msg}, column {error.colno}")
    except UnicodeDecodeError as error:
        refuse(f"not UTF-8: byte {error.object[error.start]:#04x}")
    except RecursionError:
        refuse("JSON nested too deeply")
    except ValueError as error:  # a number of thousands of digits
        refuse(str(error).partition(";")[0])
