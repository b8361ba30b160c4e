"""What the model is told of a parameter comes from the docstring, and nothing else of it is lost."""

import pytest

from perdure.tools import docstring


def test_an_args_section_is_cut_out_and_told_by_parameter():
    words, described = docstring.split(
        """Refund an order.

        Only once.

        Args:
            order (str): which one: its number,
                not its name.
            cents: how much

        Returns:
            a receipt
        """
    )
    assert words == "Refund an order.\n\nOnly once.\n\nReturns:\n    a receipt"
    assert described == {"order": "which one: its number, not its name.", "cents": "how much"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "One line.",
        "Args: are not a section in a sentence",
        "Head.\n\nArgs:",
        "Head.\n\nArgs:\n\nMore words.",
        "Parameters\n----------\nx : int\n    numpy style stays whole",
    ],
)
def test_a_docstring_without_entries_is_kept_whole(text):
    assert docstring.split(text) == (text, {})
