from django.db import migrations

from pgoutbox.django.operations import MigrateOutbox


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("pgoutbox", "0002_retention")]
    operations = [MigrateOutbox(3)]
