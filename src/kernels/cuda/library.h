/* Loads libraries of CUDA, such as cublasLt, when they are needed. Programs start without them. */
#pragma once
#include <stddef.h>

/* Open the first library of `names` that is found; the last of `names` is NULL. A name is looked
 * for where the dynamic loader looks, and then in three folders of CUDA: $CUDA_HOME, the one that
 * was set at build time, and /usr/local/cuda. If none is found, return NULL and write the loader's
 * message about the first name to `reason` [bytes]. The library is never closed: libraries with
 * kernels take long to load, and are not made to be unloaded. */
void *fsdp_cuda_library_open(const char *const *names, char *reason, size_t bytes);
