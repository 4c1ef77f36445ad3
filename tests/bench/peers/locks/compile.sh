#!/bin/sh
# Make the peers' Python locks anew, each by itself: they share nothing with ours. Needs uv on PATH.
# Versions that a lock holds stay as they are; `tests/bench/peers/locks/compile.sh --upgrade` takes the newest that fit.
set -eu
cd "$(dirname "$0")"

lock() {
    peer=$1
    requirement=$2
    shift 2
    echo "$requirement" | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
        --custom-compile-command tests/bench/peers/locks/compile.sh --output-file "$peer.txt" "$@" -
    echo "$peer.txt: $(grep -c '==' "$peer.txt") packages"
}

lock flink "apache-flink==2.2.1" "$@"
lock quix "quixstreams[avro]==3.28.1" "$@"
