"""In place of vLLM's inputs."""

TokensPrompt = dict
