"""Where learning starts: embeddings, memberships, inducing points."""
