"""The commands, each in its own file: options, and calls of the layers below."""
