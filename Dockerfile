# A node in a container:
#
#   docker build -t flintkv .
#   docker run -d --name flintkv -p 127.0.0.1:6379:6379 -p 127.0.0.1:8379:8379 -v flintkv-data:/data -v /mnt/nvme0:/flash \
#       flintkv --requirepass SECRET --memory-limit 100gb --ram-limit 30% --flash-path /flash
#
# The words after the image's name are directives, or a role and its directives: packaging/docker/flintkv-container has the roles,
# packaging/docker/compose.yml a cluster of three nodes. A container's default seccomp profile forbids io_uring. Then threads read flash,
# and the log says so. docs/operations.md, "In a container", has the profile that allows it.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The symbols stay: the backtrace of a panic names its functions.
RUN cargo build --profile dist --locked -p flintkv \
    && strip --strip-debug target/dist/flintkv \
    && { sed -E -e 's|^dir \.$|dir /data|' -e 's/^bind .*/bind * -::*/' flintkv.conf; echo 'console-bind * -::*'; } >/src/container.conf

FROM debian:bookworm-slim
# etcd for nodes of a cluster, and etcdctl for `flintkv coordinator restore`. Debian's package would start an etcd of its own, which
# policy-rc.d forbids.
RUN printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d \
    && chmod 755 /usr/sbin/policy-rc.d \
    && apt-get update \
    && apt-get install -y --no-install-recommends etcd-client etcd-server \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 639 flintkv \
    && useradd --system --uid 639 --gid flintkv --no-create-home --home-dir /data flintkv \
    && install -d -m 0750 -o flintkv -g flintkv /data /flash /etc/flintkv
COPY --from=build /src/target/dist/flintkv /usr/bin/flintkv
COPY packaging/docker/flintkv-container /usr/bin/flintkv-container
COPY LICENSE crates/flintkv/NOTICE /usr/share/doc/flintkv/
COPY --from=build --chown=flintkv:flintkv /src/container.conf /etc/flintkv/flintkv.conf
USER 639:639
# A panic tells where it came from.
ENV RUST_BACKTRACE=1
WORKDIR /data
VOLUME ["/data", "/flash"]
# The default database, the console; between the nodes of a cluster, and etcd's two.
EXPOSE 6379 8379 8380 8381 8382
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=1m --retries=3 CMD ["flintkv-container", "health"]
ENTRYPOINT ["flintkv-container"]
