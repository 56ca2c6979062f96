"""Committee of clustering algorithms: consensus clustering by weighted votes."""
