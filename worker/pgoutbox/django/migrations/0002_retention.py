from django.db import migrations

from pgoutbox.django.operations import MigrateOutbox


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("pgoutbox", "0001_outbox")]
    operations = [MigrateOutbox(2)]
