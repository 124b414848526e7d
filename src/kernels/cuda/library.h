/* Loads libraries of CUDA, such as cublasLt, when they are needed. Programs start without them. */
#pragma once
#include <stddef.h>

/* Open the first library of `names`, which ends with NULL, that is found: where the dynamic loader
 * looks for libraries, and then in the folders of CUDA: that of $CUDA_HOME, that of the build, and
 * /usr/local/cuda. Return NULL if none is found; `reason` [bytes] then has the loader's message
 * about the first name. The library is never closed: libraries with kernels take long to load, and
 * are not made to be unloaded. */
void *fsdp_cuda_library_open(const char *const *names, char *reason, size_t bytes);
