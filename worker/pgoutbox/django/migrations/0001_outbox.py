from django.db import migrations

from pgoutbox.django.operations import MigrateOutbox


class Migration(migrations.Migration):
    atomic = False
    dependencies: list[tuple[str, str]] = []
    operations = [MigrateOutbox(1)]
