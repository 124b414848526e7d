#!/bin/sh
# usage: tools/cuda_kernels.sh [BUILD]: checks the attention kernels that nvcc compiled in BUILD/
# (default: build). Prints the registers and spills of each kernel for tensor cores and fails if
#   - the code for sm_90a does not multiply by wgmma (HGMMA), or the code for sm_80 not by mma.sync (HMMA);
#   - a kernel spills more than 32 bytes of registers to memory. (d_k and d_v with dropout and 64
#     columns has 8 to 32, since three blocks fit a multiprocessor only with 168 registers a thread.)
# Needs cuobjdump: CUOBJDUMP, $CUDA_HOME/bin or PATH (in pip: nvidia-cuda-cuobjdump).
set -u
build=${1:-build}
cuobjdump=${CUOBJDUMP:-}
[ -n "$cuobjdump" ] || cuobjdump=$(command -v cuobjdump) || cuobjdump=${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump
if [ ! -x "$cuobjdump" ]; then
    echo "cuda_kernels: no cuobjdump ($cuobjdump): set CUOBJDUMP or CUDA_HOME" >&2
    exit 2
fi
objects=$(ls "$build"/src/kernels/cuda/attention_tensor_*.cu.o 2>/dev/null)
if [ -z "$objects" ]; then
    echo "cuda_kernels: no $build/src/kernels/cuda/attention_tensor_*.cu.o: build them with nvcc first" >&2
    exit 2
fi
failed=0
fail()
{
    echo "cuda_kernels: $1" >&2
    failed=1
}
# check_products OBJECT ARCH INSTRUCTION: each kernel of the object has the instruction.
check_products()
{
    "$cuobjdump" -sass -arch "$2" "$1" | awk -v instruction="$3" '
        /Function :/ { if (name != "" && !n) print name; name = $NF; n = 0 }
        index($0, instruction) { n++ }
        END { if (name != "" && !n) print name; if (name == "") print "(no kernel at all)" }' >"$list"
    while read -r kernel; do
        fail "$1: $2: $kernel has no $3"
    done <"$list"
}
list=$(mktemp) || exit 2
trap 'rm -f "$list"' EXIT
printf '%-8s %-10s %9s %9s  %s\n' arch registers stack local kernel
for object in $objects; do
    check_products "$object" sm_90a HGMMA
    check_products "$object" sm_80 HMMA
    for arch in sm_80 sm_90a; do
        "$cuobjdump" -res-usage -arch $arch "$object" 2>&1 | awk -v arch=$arch '
            /^ *Function / { sub(/:$/, "", $2); name = $2 }
            /REG:/ {
                for (i = 1; i <= NF; i++) { split($i, x, ":"); v[x[1]] = x[2] }
                if (name ~ /attention_tensor/)
                    printf "%-8s %-10s %9s %9s  %s\n", arch, v["REG"], v["STACK"], v["LOCAL"], name
            }' >"$list"
        cat "$list"
        [ -s "$list" ] || fail "$object: $arch: cuobjdump reports no kernel"
        spilled=$(awk '$3 > 32 || $4 != 0 { print $5 }' "$list")
        for kernel in $spilled; do
            fail "$object: $arch: $kernel spills registers (its stack has more than 32 bytes)"
        done
    done
done
[ $failed = 0 ] && echo "cuda_kernels: wgmma and mma.sync are there, no kernel spills more than 32 bytes"
exit $failed
