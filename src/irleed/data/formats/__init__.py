"""Files of demonstrations that other programs write, told apart by their content; one thin module each."""

from irleed.data.formats.base import Format, Reading

__all__ = ["Format", "Reading"]
