/* Loads cublasLt. The library's file name contains the major version of CUDA. The functions and
 * constants of cublasLt that gemm uses do not differ between versions 12 and 13. */
#include "src/kernels/cuda/cublaslt.h"

#include <string.h>

#ifdef CUDA_EMULATED

/* The emulator of the tests is linked into the program, so there is nothing to load. */
fsdp_status fsdp_cublaslt_load(fsdp_cublaslt *lt)
{
#define LINKED(name) .name = cublasLt##name,
    *lt = (fsdp_cublaslt){FSDP_CUBLASLT_FUNCTIONS(LINKED)};
    return FSDP_OK;
}

#else
#include <dlfcn.h>

#include "src/kernels/cuda/library.h"

static fsdp_status not_loaded(const char *reason)
{
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "%s (cublasLt multiplies matrices on a CUDA device; the packages "
        "libcublas-13-x of CUDA and nvidia-cublas of PyPI have it. It was looked for in "
        "$LD_LIBRARY_PATH, in the folders of the loader and in those of $CUDA_HOME)",
        reason);
}

fsdp_status fsdp_cublaslt_load(fsdp_cublaslt *lt)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    char reason[256];
    memset(lt, 0, sizeof *lt);
    void *library = fsdp_cuda_library_open(names, reason, sizeof reason);
    if (!library)
        return not_loaded(reason);
    /* The result of dlsym() is converted to a pointer to a function. ISO C does not allow this
     * conversion, but POSIX does. */
    const char *missing = NULL;
    void *address;
#define FIND(name)                                                                                 \
    address = dlsym(library, "cublasLt" #name);                                                    \
    memcpy(&lt->name, &address, sizeof address);                                                   \
    if (!address)                                                                                  \
        missing = "cublasLt" #name;
    FSDP_CUBLASLT_FUNCTIONS(FIND)
    return missing ? fsdp_error(FSDP_ERR_UNSUPPORTED, "libcublasLt.so has no function %s", missing)
                   : FSDP_OK;
}
#endif
