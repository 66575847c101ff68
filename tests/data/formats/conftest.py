"""What a format's reader says of a file that it does not read."""

import pytest

from irleed.data.formats import ReadOptions
from irleed.errors import DataError


@pytest.fixture
def refusal(request):
    """A function of a path and a `ReadOptions`, or its fields: the message, which is one line and names what is wrong.

    The reader is that of the `FORMAT` of the test's module, or `kind`.
    """

    def message(path, reading: ReadOptions | None = None, kind=None, **choices) -> str:
        with pytest.raises(DataError) as caught:
            (kind or request.module.FORMAT).read(path, reading or ReadOptions(**choices))
        said = str(caught.value)
        assert len(said.splitlines()) == 1
        assert said.startswith(str(path))
        assert "expected" in said
        return said

    return message
