"""Files: models now; tables with the command line."""
