#!/bin/sh
# Makes an environment smaller, and quicker to start: removes what no step reads, and compiles what every step imports.
#
#   slim.sh /opt/venv MODULE...
set -eu
environment=$1
shift
packages=$(echo "$environment"/lib/python3.*/site-packages)

# C++ headers (289 MB of TensorFlow's), a C compiler's library, the tests of packages.
rm -rf "$packages"/tensorflow/include "$packages"/pyarrow/include "$packages"/numpy/_core/include "$packages"/clang
find "$packages" -type d -name tests -prune -exec rm -rf {} +

# Names of functions that only a debugger reads (210 MB of TensorFlow's).
strip --strip-unneeded "$packages"/tensorflow/*.so.2

# Byte code of what is imported, which a user who may not write here would compile at each start; of all, it is 350 MB.
for module in "$@"; do
    FORCE_TF_AVAILABLE=1 TPU_SKIP_MDS_QUERY=1 "$environment/bin/python" -c "import $module"
done
