#!/bin/sh
# usage: tools/find_cuda.sh WITHOUT CUDA_HOME INCLUDE NVCC CODE DECLINED: prints in one line what the
# build uses of CUDA. The arguments are the Makefile's: WITHOUT as given to make, the folder that was
# searched, the folder with the headers ("" if they were not found or are not wanted), nvcc (""
# likewise), what it compiles for, and 1 if the user asked for a build without nvcc ("make NVCC=").
without=$1 home=$2 include=$3 nvcc=$4 code=$5 declined=$6
case " $without " in *' CUDA '*)
    echo "cuda: built without, since WITHOUT contains CUDA"
    exit
    ;;
esac
if [ -z "$include" ]; then
    found=$(command -v nvcc) && found="nvcc ($found) was found, but " || found=
    echo "cuda: built without: ${found}cublasLt.h is not in $home/include (CUDA_HOME=DIR names another folder)"
    exit
fi
if [ -n "$declined" ]; then
    echo "cuda: built without, since NVCC is empty"
    exit
fi
version=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\).*/\1/p' "$include/cuda_runtime_api.h" 2>/dev/null)
release=${version:+ $((version / 1000)).$((version % 1000 / 10))}
if [ -z "$nvcc" ]; then
    echo "cuda: headers$release in $include, but no nvcc: the tests have device cuda on an emulator, the program has none"
else
    echo "cuda:$release, $nvcc: to be built with device cuda for $code"
    # The driver makes this file where there is a card.
    [ -e /dev/nvidiactl ] || echo "cuda: no card is visible here; 'make NVCC=' builds without device cuda, several minutes faster"
fi
