"""What is not the walk: connections, migrations, statistics, retention."""
