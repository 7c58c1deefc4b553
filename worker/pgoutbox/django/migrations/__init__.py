"""One for each migration of the product, since a project may stop at any."""
