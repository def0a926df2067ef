#!/bin/sh
# Builds the assemblies from sum_by_label.cpp. No GPU, driver, ROCm or HIP is needed:
#   pip install ziglang==0.17.1      # carries clang 22.1.8, with the AMD GPU targets
#   sh build.sh [DIRECTORY]
# Any clang with the amdgcn target serves (CLANG="clang-22" sh build.sh), but other versions emit other text.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
to=${1:-$here}
cd "$here"
for arch in gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1151 gfx1201; do
    for build in faulty fixed; do
        define=$([ "$build" = fixed ] && echo -DFIXED || echo)
        ${CLANG:-python3 -m ziglang clang} --target=amdgcn-amd-amdhsa -mcpu="$arch" -nogpulib -O2 \
            -munsafe-fp-atomics $define -S -o "$to/$build.$arch.s" sum_by_label.cpp
    done
done
