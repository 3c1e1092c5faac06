# A member, built from this checkout:  docker build -f deploy/docker/member.Dockerfile -t veilsum-member .
# Its identity and state are in /identity. Give each member its own volume, and never share one between two containers.
#   docker run --rm -it -v hospital-a:/identity -v "$PWD":/features:ro veilsum-member join /identity/hospital-a …
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/veilsum \
 && /opt/veilsum/bin/pip install --no-cache-dir --constraint constraints.txt '.[tables]' \
 && sh deploy/docker/slim.sh /opt/veilsum

FROM python:3.13-slim-bookworm
COPY --from=build /opt/veilsum /opt/veilsum
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin veilsum \
 && install --directory --owner=10001 --group=10001 --mode=0700 /identity
USER 10001:10001
ENV PATH=/opt/veilsum/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
VOLUME /identity
WORKDIR /identity
ENTRYPOINT ["veilsum"]
CMD ["--help"]
