#!/bin/sh
# usage: tools/find_cuda.sh CC: prints in one line what this machine has of CUDA, and that the
# build does not use it. CUDA_HOME (/usr/local/cuda) is searched, too.
cc=${1:-cc}
home=${CUDA_HOME:-/usr/local/cuda}
nvcc=$(command -v nvcc) || nvcc=$home/bin/nvcc
found= missing=
note() { if [ "$2" = 0 ]; then found="$found, $1"; else missing="$missing, $1"; fi; }
[ -x "$nvcc" ]
note nvcc $?
for library in cuBLASLt:cublasLt.h cuDNN:cudnn.h NCCL:nccl.h; do
    echo "#include <${library#*:}>" | "$cc" -I"$home/include" -E - >/dev/null 2>&1
    note "${library%%:*}" $?
done
echo "cuda: ${found:+found: ${found#, }; }${missing:+not found: ${missing#, }; }built without (this version has no CUDA device)"
