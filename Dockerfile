# docs/guide/install.md says how to build it and how to run it.
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
RUN python3 -m venv /opt/ctxagent
WORKDIR /source
COPY . .
RUN /opt/ctxagent/bin/pip install --no-cache-dir --constraint constraints.txt . \
    && /opt/ctxagent/bin/pip uninstall --yes pip

FROM debian:trixie-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        bubblewrap ca-certificates git python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home -K HOME_MODE=0755 --shell /bin/bash ctxagent \
    && install --directory --owner=ctxagent --group=ctxagent --mode=700 /state \
    && install --directory --owner=ctxagent --group=ctxagent /work
COPY --from=build /opt/ctxagent /opt/ctxagent
ENV PATH=/opt/ctxagent/bin:$PATH \
    HOME=/home/ctxagent \
    LANG=C.UTF-8 \
    CTXAGENT_STATE_DIR=/state
USER ctxagent
WORKDIR /work
ENTRYPOINT ["ctxagent"]
