"""The least that Django needs. The database is the one that the outbox is in."""

import os

from psycopg.conninfo import conninfo_to_dict

_dsn = conninfo_to_dict(os.environ["SHOP_DSN"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _dsn.get("dbname", ""),
        "USER": _dsn.get("user", ""),
        "PASSWORD": _dsn.get("password", ""),
        "HOST": _dsn.get("host", ""),
        "PORT": str(_dsn.get("port", "")),
    }
}
INSTALLED_APPS = ["pgoutbox.django", "shop"]
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for an example")
USE_TZ = True
