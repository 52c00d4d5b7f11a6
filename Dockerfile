# syntax=docker/dockerfile:1
# One image with all programs; the command says which one runs.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The caches keep dependencies from one build to the next; the programs are copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked \
      --package tidegate \
      --package tidegate-coordinator \
      --package tidegate-task-runner \
      --package tidegate-publisher \
      --package tidegate-handoff-checker \
    && mkdir /programs \
    && cd target/release \
    && cp tidegate tidegate-coordinator tidegate-task-runner tidegate-publisher tidegate-handoff-checker /programs/

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /var/lib/tidegate --create-home --shell /usr/sbin/nologin tidegate
COPY --from=build /programs/ /usr/local/bin/
USER 10001
WORKDIR /var/lib/tidegate
# The only local state is a task-runner's work directory; everything else is in SQL and the object store.
VOLUME /var/lib/tidegate
# gRPC of coordinator, task-runner, publisher, handoff-checker; metrics of each on the port after it.
EXPOSE 7100 7101 7200 7201 7300 7301 7400 7401
# SIGTERM drains; give it more than `drain_timeout` (30 s) before killing.
STOPSIGNAL SIGTERM
CMD ["tidegate", "--help"]
