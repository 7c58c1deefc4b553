# One image for workers (`pgoutbox run`), for every other command, and for the operator
# (`pgoutbox-operator`). Any base with Python 3.11 or newer will do.
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_QUIET=1
WORKDIR /build
RUN python -m venv /opt/pgoutbox && python -m venv /opt/build
# What changes seldom comes first. Every file is checked against its hash.
COPY requirements-build.lock requirements-image.lock ./
RUN /opt/build/bin/python -m pip install --require-hashes -r requirements-build.lock \
 && /opt/pgoutbox/bin/python -m pip install --require-hashes -r requirements-image.lock
COPY LICENSE README.md pyproject.toml ./
COPY migrations migrations
COPY operator operator
COPY worker worker
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/pgoutbox/bin/python -m pip install --no-deps dist/*.whl \
 && /opt/pgoutbox/bin/python -m pip uninstall --yes pip \
 && find /opt/pgoutbox -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} +

FROM ${BASE_IMAGE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pgoutbox" \
      org.opencontainers.image.description="A transactional outbox for PostgreSQL" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/pgoutbox /opt/pgoutbox
ENV PATH=/opt/pgoutbox/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Nobody that the base knows: needs no name, no home and no shell.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["pgoutbox"]
CMD ["run"]
