# A broker in a container:
#   docker build -t ottla .
#   docker run -p 9092:9092 -v ottla:/var/lib/ottla ottla
# Settings are environment variables: OTTLA_NUM_PARTITIONS=3 is num.partitions=3. Clients that are not on this machine need
# OTTLA_ADVERTISED_LISTENERS=PLAINTEXT://<name they can reach>:9092.

FROM python:3.11-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc=4:12.* libc6-dev=2.36-* \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/ottla \
    && OTTLA_COMPILE=1 /opt/ottla/bin/pip install --no-cache-dir '.[cluster]'

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin ottla \
    && install --directory --owner ottla /var/lib/ottla
COPY --from=build /opt/ottla /opt/ottla
ENV PATH=/opt/ottla/bin:$PATH \
    OTTLA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    OTTLA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    OTTLA_LOG_DIRS=/var/lib/ottla
USER 10001
WORKDIR /var/lib/ottla
VOLUME /var/lib/ottla
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=20s --start-period=30s --retries=3 \
    CMD ["ottla", "topic", "list", "--bootstrap-servers", "127.0.0.1:9092", "--json"]
ENTRYPOINT ["ottla", "serve"]
