"""Option types for numbers. Help and errors say in words which numbers are allowed."""

import math
from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number within limits."""

    def _describe_range(self) -> str:
        return _range_text(self)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise _not_allowed(self, "whole number", value, param, ctx) from None


class Amount(click.FloatRange):
    """A finite number within limits."""

    def _describe_range(self) -> str:
        return _range_text(self)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            raise _not_allowed(self, "number", value, param, ctx)
        return number


def _range_text(numbers: WholeNumber | Amount) -> str:
    return f"{numbers.min} or more" if numbers.max is None else f"{numbers.min} to {numbers.max}"


def _not_allowed(
    numbers: WholeNumber | Amount,
    noun: str,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> click.BadParameter:
    link = "of" if numbers.max is None else "from"
    what = f"{str(value)!r} is not allowed. Give a {noun} {link} {_range_text(numbers)}."
    return click.BadParameter(what, ctx, param)
