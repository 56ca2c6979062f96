"""Pictures of fitted models; knows nothing of how they are fitted."""
