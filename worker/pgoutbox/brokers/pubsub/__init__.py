"""Google Pub/Sub, by Google's generated client."""
