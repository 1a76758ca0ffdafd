#!/bin/bash -eu
# Builds every target of fuzz/fuzz_targets into $OUT, each with its inputs of fuzz/corpus and the bounds of scripts/fuzz.
cargo fuzz build
for source in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    inputs=$(mktemp -d)
    tar --extract --gzip --file="fuzz/corpus/$target.tar.gz" --directory="$inputs"
    zip --quiet --junk-paths --recurse-paths "$OUT/${target}_seed_corpus.zip" "$inputs"
    printf '[libfuzzer]\nmax_len = 4096\ntimeout = 60\nrss_limit_mb = 2048\nmalloc_limit_mb = 64\n' >"$OUT/$target.options"
done
