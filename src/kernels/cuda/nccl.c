/* See nccl.h. */
#include "src/kernels/cuda/nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static fsdp_nccl functions;
static const char *missing; /* the name of a function that the library does not have */

#ifdef CUDA_EMULATED
/* The emulator of the tests is linked into the program. Its functions have the types of NVIDIA's
 * header, so they are declared here only as addresses. */
#define DECLARE(result, name, parameters) extern char nccl##name[];
FSDP_NCCL_FUNCTIONS(DECLARE)
#define ADDRESS_OF(name) ((void *)nccl##name)

static void *open_library(char *reason, size_t bytes)
{
    (void)reason, (void)bytes;
    return &functions;
}
#else
#include <dlfcn.h>

#include "src/kernels/cuda/library.h"

#define ADDRESS_OF(name) dlsym(library, "nccl" #name)

static void *open_library(char *reason, size_t bytes)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    return fsdp_cuda_library_open(names, reason, bytes);
}
#endif

static char no_library[256]; /* why the library was not loaded; empty if it was */

/* An address is converted to a pointer to a function. ISO C does not allow this conversion, but
 * POSIX does. */
static void load(void)
{
    void *library = open_library(no_library, sizeof no_library), *address;
    if (!library)
        return;
#define FIND(result, name, parameters)                                                             \
    address = ADDRESS_OF(name);                                                                    \
    memcpy(&functions.name, &address, sizeof address);                                             \
    if (!address)                                                                                  \
        missing = "nccl" #name;
    FSDP_NCCL_FUNCTIONS(FIND)
}

const fsdp_nccl *fsdp_nccl_load(char *reason, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (missing)
        snprintf(reason, bytes, "libnccl.so.2 has no function %s: NCCL 2.14 or newer is needed",
                 missing);
    else if (*no_library)
        snprintf(reason, bytes, "%s", no_library);
    return missing || *no_library ? NULL : &functions;
}
