"""The commands, one a file: options in words, and calls of the layers below."""
