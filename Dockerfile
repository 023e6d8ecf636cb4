# The server's image. It needs the Docker socket and the workspaces' directory from outside: see
# docker-compose.yml. Builds with BuildKit and with the classic builder.
FROM rust:1.95-slim-trixie AS builder
WORKDIR /build

# The dependencies first, in a layer of their own: they change less often than the sources. Cargo
# wants every target its manifest names, so empty ones stand in.
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src tests/it && \
    echo 'fn main() {}' | tee src/main.rs > tests/it/main.rs && \
    touch src/lib.rs && \
    cargo build --release --locked && \
    # The stand-ins may be newer than the sources that replace them, and cargo goes by time.
    cargo clean --release --locked --package mcp-code-sandbox && \
    rm -r src

COPY build.rs ./
COPY src ./src
ARG COMMIT=unknown
RUN COMMIT=$COMMIT cargo build --release --locked && \
    target/release/mcp-code-sandbox --version

FROM debian:trixie-slim
LABEL org.opencontainers.image.title="mcp-code-sandbox" \
      org.opencontainers.image.description="MCP server that runs model-written code in fresh, hardened containers" \
      org.opencontainers.image.licenses="MIT"
COPY --from=builder /build/target/release/mcp-code-sandbox /usr/local/bin/mcp-code-sandbox
# Large blocks go back to the system when they are freed: glibc otherwise keeps them once there were some.
ENV MALLOC_MMAP_THRESHOLD_=262144
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
    CMD ["mcp-code-sandbox", "healthcheck"]
ENTRYPOINT ["mcp-code-sandbox"]
CMD ["serve"]
