/* Loads libraries of CUDA, such as cublasLt, at run time, so that programs start on machines that
 * do not have these libraries. */
#pragma once
#include <stddef.h>

/* Open the first of the libraries `names` that is found. The list ends with NULL. Each name is
 * searched first where the dynamic loader searches, and then in three folders of CUDA: $CUDA_HOME,
 * the folder that was set at build time, and /usr/local/cuda. If no library is found, return NULL
 * and write the loader's message about the first name to `reason` [bytes]. The library is never
 * closed, because libraries with kernels take long to load, and are not made to be unloaded. */
void *fsdp_cuda_library_open(const char *const *names, char *reason, size_t bytes);
