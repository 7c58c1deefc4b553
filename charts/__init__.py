"""The Helm chart, and what is generated for it."""
