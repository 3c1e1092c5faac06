# The coordinator, built from this checkout:  docker build -f deploy/docker/coordinator.Dockerfile -t veilsum-coordinator .
# Base images are named by tag. For reproducible builds pin them by digest (docker buildx imagetools inspect).
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/veilsum \
 && /opt/veilsum/bin/pip install --no-cache-dir --constraint constraints.txt '.[service,otel]' \
 && install -m 0644 deploy/docker/healthcheck.py /opt/veilsum/healthcheck.py \
 && sh deploy/docker/slim.sh /opt/veilsum

FROM python:3.13-slim-bookworm
COPY --from=build /opt/veilsum /opt/veilsum
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin veilsum \
 && install --directory --owner=10001 --group=10001 --mode=0700 /data
USER 10001:10001
ENV PATH=/opt/veilsum/bin:$PATH VEILSUM_DATA_DIR=/data PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python", "/opt/veilsum/healthcheck.py"]
CMD ["veilsum", "serve", "--host", "0.0.0.0"]
