#!/bin/sh
# Removes from the environment $1 what no Lockgate process loads: examples, the packages' own tests, headers, and native
# libraries for other systems. Nothing that Spark SQL, a standalone master, Spark Connect or ZooKeeper uses.
set -eu
packages=$(echo "$1"/lib/python3*/site-packages)
rm -rf "$packages/pyspark/examples" "$packages/pyarrow/tests" "$packages/pyarrow/include" "$packages/pandas/tests"
find "$packages/numpy" -type d -name tests -prune -exec rm -rf {} +
jars=$packages/pyspark/jars
rm -f "$jars"/*-osx-*.jar "$jars"/*-windows-*.jar "$jars"/*-linux-riscv64.jar
case $(uname -m) in
    x86_64) rm -f "$jars"/*-linux-aarch_64.jar ;;
    aarch64) rm -f "$jars"/*-linux-x86_64.jar ;;
esac
